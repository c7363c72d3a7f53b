//! Figure 10, table 1 and section 9.3: what logs and schedulers cost.

use std::io::Write;

use serde_json::json;
use sim::paper::figures::{MESSAGE_US, Resources, Tolerance};

use crate::command::Error;

pub(super) fn json_lines(
    tolerances: &[Tolerance],
    resources: &[Resources],
    out: &mut dyn Write,
) -> Result<(), Error> {
    for Tolerance { mix, reliability, wips, clients, response_ms } in tolerances {
        let line = json!({
            "mix": mix.name(), "reliability": reliability.name(), "replicas": 8, "wips": wips,
            "clients": clients, "response_ms": response_ms,
        });
        writeln!(out, "{line}")?;
    }
    for one in resources {
        let line = json!({
            "mix": one.crowd.mix.name(), "schedulers": one.crowd.schedulers, "replicas": 60,
            "speed": one.crowd.speed, "wips": one.wips, "message_us": MESSAGE_US,
            "messages_per_interaction": one.messages_per_interaction, "processor": one.busy,
            "memory_mb": one.memory_mb, "network_mb_per_s": one.network_mb_per_s,
            "disk_mb_per_s": one.disk_mb_per_s,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Figure 10.
pub(super) fn tolerances(all: &[Tolerance], out: &mut dyn Write) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<9} {:<12} {:>8} {:>8} {:>11}",
        "mix", "8 replicas", "wips", "clients", "response ms"
    )?;
    for Tolerance { mix, reliability, wips, clients, response_ms } in all {
        let (mix, reliability) = (mix.name(), reliability.name());
        writeln!(out, "{mix:<9} {reliability:<12} {wips:>8.1} {clients:>8} {response_ms:>11.0}")?;
    }
    Ok(())
}

/// Table 1 and section 9.3.
pub(super) fn resources(all: &[Resources], out: &mut dyn Write) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<9} {:>5} {:>10} {:>8} {:>8} {:>9} {:>9} {:>12} {:>9}   60 replicas, {MESSAGE_US} us a message",
        "mix",
        "speed",
        "schedulers",
        "wips",
        "messages",
        "processor",
        "memory MB",
        "network MB/s",
        "disk MB/s"
    )?;
    for one in all {
        writeln!(
            out,
            "{:<9} {:>4}x {:>10} {:>8.1} {:>8.1} {:>7.0} % {:>9.2} {:>12.2} {:>9.4}",
            one.crowd.mix.name(),
            one.crowd.speed,
            one.crowd.schedulers,
            one.wips,
            one.messages_per_interaction,
            one.busy * 100.0,
            one.memory_mb,
            one.network_mb_per_s,
            one.disk_mb_per_s
        )?;
    }
    Ok(())
}
