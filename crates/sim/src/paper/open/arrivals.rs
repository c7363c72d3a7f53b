//! Random times: Poisson arrivals, and values that vary around a mean.

use std::f64::consts::TAU;

use crate::dice::Dice;

/// No value is less than this part of its mean: a Gaussian law has no least value.
const LEAST_FACTOR: f64 = 0.05;

/// A time that varies: the mean multiplied with a Gaussian factor of mean 1 (Gargamel, Table I).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Jittered {
    /// The mean.
    pub mean_us: f64,
    /// The variance of the factor.
    pub variance: f64,
}

impl Jittered {
    /// One value.
    pub fn draw_us(self, dice: &mut Dice) -> u64 {
        // Box and Muller.
        let gauss = (-2.0 * share(dice).ln()).sqrt() * (TAU * share(dice)).cos();
        let factor = (1.0 + gauss * self.variance.sqrt()).max(LEAST_FACTOR);
        whole_us(self.mean_us * factor)
    }
}

/// Times of arrivals from 0 up to the end of the phase, in order.
pub fn poisson_us(rate_per_s: u32, phase_us: u64, dice: &mut Dice) -> Vec<u64> {
    let mean_us = 1e6 / f64::from(rate_per_s);
    let mut at_us = 0;
    let next = || {
        at_us += exponential_us(mean_us, dice);
        (at_us < phase_us).then_some(at_us)
    };
    std::iter::from_fn(next).collect()
}

/// A time without memory: how long it has lasted says nothing about its end.
pub fn exponential_us(mean_us: f64, dice: &mut Dice) -> u64 {
    whole_us(-mean_us * share(dice).ln())
}

/// From 53 random bits, never 0, so that the logarithm is finite.
fn share(dice: &mut Dice) -> f64 {
    ((dice.number() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[expect(clippy::cast_sign_loss, reason = "no time here is negative")]
fn whole_us(us: f64) -> u64 {
    us.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_rate_and_spread() {
        let mut dice = Dice::new(1);
        let at_us = poisson_us(100, 200_000_000, &mut dice);
        assert!(at_us.is_sorted() && at_us.last().is_some_and(|last| *last < 200_000_000));
        assert!((19_400..20_600).contains(&at_us.len()), "{}", at_us.len());
        let gaps: Vec<f64> = at_us.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e4).collect();
        let long = gaps.iter().filter(|gap| **gap > 2.0).count() as f64 / gaps.len() as f64;
        assert!((long - (-2_f64).exp()).abs() < 0.01, "{long}");
    }

    #[test]
    fn jitter_has_its_mean_and_variance() {
        let mut dice = Dice::new(2);
        let jittered = Jittered { mean_us: 1e6, variance: 0.025 };
        let factors: Vec<f64> = (0..20_000).map(|_| jittered.draw_us(&mut dice) as f64 / 1e6).collect();
        let mean = factors.iter().sum::<f64>() / 20_000.0;
        let variance = factors.iter().map(|factor| (factor - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!((mean - 1.0).abs() < 0.005 && (variance - 0.025).abs() < 0.001, "{mean} {variance}");
        assert_eq!(Jittered { mean_us: 0.0, variance: 0.01 }.draw_us(&mut dice), 0);
    }
}
