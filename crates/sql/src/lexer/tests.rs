use super::*;

fn keyed(text: &str) -> Option<(String, Span)> {
    let mut bytes = Vec::new();
    let span = key(text.as_bytes(), &mut bytes).ok()?;
    Some((String::from_utf8(bytes).unwrap(), span))
}

#[test]
fn constants_are_taken_out() {
    let (one, span) = keyed(" SELECT a FROM t WHERE b = 12 AND c = 'x''y' ; -- end").unwrap();
    assert_eq!(one, "SELECT a FROM t WHERE b = \u{3} AND c = \u{1}");
    assert_eq!((span.start, span.end), (1, 45));
}
