use super::*;

#[test]
fn texts_that_differ_in_constants_share_a_template() {
    let mut analyzer = Analyzer::new(Limits::default());
    let one = analyzer.script(b"select a from t where b = 1", true).unwrap();
    let two = analyzer.script(b"select a from t where b = 234;", true).unwrap();
    assert!(Arc::ptr_eq(&one.statements[0].statement, &two.statements[0].statement));
    assert_eq!((two.statements[0].start, two.statements[0].end), (0, 29));
    assert_eq!(analyzer.statistics().hits, 1);
}
