//! Random values of types, as expressions.

use sim::dice::Dice;

/// Numbers that a value is made of.
struct Numbers {
    any: u64,
    /// Of any size.
    wide: i64,
    /// Up to a hundred thousand, of either sign.
    small: i64,
}

/// A random value of a type, if there is more to draw than the list has.
pub(super) fn drawn(name: &str, dice: &mut Dice) -> Option<String> {
    let any = dice.number();
    let wide = any.cast_signed() >> dice.below(64);
    let numbers = Numbers { any, wide, small: (any % 200_001).cast_signed() - 100_000 };
    let plain = numeral(name, &numbers, dice).or_else(|| moment(name, &numbers));
    let plain = plain.or_else(|| address(name, &numbers)).or_else(|| shape(name, dice));
    plain.or_else(|| document(name, dice)).or_else(|| range(name, &numbers, dice))
}

fn numeral(name: &str, numbers: &Numbers, dice: &mut Dice) -> Option<String> {
    let Numbers { any, wide, small } = numbers;
    Some(match name {
        "int2" => format!("({})::int2", *wide as i16),
        "int4" => format!("({})::int4", *wide as i32),
        "int8" => format!("({wide})::int8"),
        "money" => format!("{wide} * '0.01'::money"),
        "oid" => format!("'{}'::oid", wide.cast_unsigned() as u32),
        "xid8" => format!("'{any}'::xid8"),
        "pg_lsn" => format!("'{:X}/{:X}'::pg_lsn", any >> 32, *any as u32),
        "float8" => float(dice),
        "float4" => format!("'{:?}'::float4", f32::from_bits(*any as u32)).replace("inf", "Infinity"),
        "numeric" => format!("({wide}::numeric / power(10::numeric, {}))::numeric", dice.below(60)),
        "bytea" => format!("decode('{any:016x}', 'hex')"),
        "bit" => format!("({wide})::int8::bit(64)::bit"),
        "varbit" => format!("substring(({wide})::int8::bit(64)::varbit from 1 for {})", dice.below(65)),
        "uuid" => format!("'{any:016x}{wide:016x}'::uuid"),
        "int2vector" => format!("'{} {} {}'::int2vector", *wide as i16, *any as i16, *small as i16),
        "oidvector" => format!("'{} {}'::oidvector", wide.cast_unsigned() as u32, *any as u32),
        "pg_snapshot" | "txid_snapshot" => {
            let first = any % 1_000_000 + 1;
            format!("'{first}:{}:{},{}'::{name}", first + 9, first + 1, first + 4)
        }
        _ => return None,
    })
}

fn moment(name: &str, numbers: &Numbers) -> Option<String> {
    let Numbers { any, wide, small } = numbers;
    let part = any % 1_000_000;
    Some(match name {
        "date" => format!("date '2000-01-01' + ({small})"),
        "time" => format!("time '12:00' + interval '{small}.{part} s'"),
        "timetz" => {
            // Some zones are too far away for other servers.
            let zone_s = small % 60_000;
            format!(
                "timezone(make_interval(secs => {zone_s}), time '12:00' AT TIME ZONE 'UTC' + interval '{small} s')"
            )
        }
        "timestamp" => {
            format!("timestamp '2000-01-01' + interval '{small} days {} us'", any % 86_400_000_000)
        }
        "timestamptz" => format!("timestamptz '2000-01-01 00:00Z' + interval '{} us'", wide % (1 << 53)),
        "interval" => {
            format!("make_interval({}, {}, 0, {small}, 0, 0, {small}.{part})", small % 1000, small % 20)
        }
        _ => return None,
    })
}

fn address(name: &str, numbers: &Numbers) -> Option<String> {
    let (any, host) = (numbers.any, numbers.any as u32);
    Some(match name {
        "inet" => format!("'0.0.0.0/{}'::inet + {host}::int8", any % 33),
        "cidr" => format!("network(set_masklen('0.0.0.0'::inet + {host}::int8, {}))", any % 33),
        "macaddr" => format!("'{:012x}'::macaddr", any >> 16),
        "macaddr8" => format!("'{any:016x}'::macaddr8"),
        _ => return None,
    })
}

fn shape(name: &str, dice: &mut Dice) -> Option<String> {
    let (one, other, length, way) = (point(dice), point(dice), float(dice), dice.below(4));
    Some(match (name, way) {
        ("point", _) => one,
        ("lseg", _) => format!("lseg({one}, {other})"),
        ("line", _) => format!("line({one}, {other})"),
        ("box", 0) => format!("box(circle({one}, {length}))"),
        ("box", 1) => format!("box({one}, {other}) * {}", point(dice)),
        ("box", _) => format!("box({one}, {other})"),
        ("path", 0 | 1) => format!("pclose(format('[%s,%s]', {one}, {other})::path)"),
        ("path", _) => format!("popen(format('[%s,%s]', {one}, {other})::path)"),
        ("polygon", _) => format!("polygon({}, circle({one}, 2))", dice.between(2, 9)),
        ("circle", 0) => format!("circle({one}, {length})"),
        ("circle", 1) => format!("circle(box({one}, {other}))"),
        ("circle", _) => format!("circle({one}, abs({length})) * {other}"),
        _ => return None,
    })
}

fn document(name: &str, dice: &mut Dice) -> Option<String> {
    Some(match name {
        "text" | "varchar" | "bpchar" | "name" => format!("{}::{name}", text(dice)),
        "tsquery" => query(dice, 3),
        "tsvector" => {
            let language = dice.pick(&["english", "simple"]);
            format!("to_tsvector('{language}', {}) || {}", words(dice), vector(dice))
        }
        "json" | "jsonb" => format!("'{}'::{name}", json(dice, 3)),
        "jsonpath" => format!("'{}'::jsonpath", path(dice, 3)),
        "xml" => xml(dice, 3),
        _ => return None,
    })
}

fn range(name: &str, numbers: &Numbers, dice: &mut Dice) -> Option<String> {
    let bounds = dice.pick(&["[)", "[]", "(]", "()"]);
    let mut two = |of| Some(format!("{name}({}, {})", drawn(of, dice)?, drawn(of, dice)?));
    Some(match name {
        "int4range" | "int8range" | "numrange" => {
            let (from, to) = (numbers.small, numbers.small + (numbers.any % 9).cast_signed());
            format!("{name}({from}, {to}, '{bounds}')")
        }
        "daterange" => format!("daterange({}, NULL, '{bounds}')", moment("date", numbers)?),
        "tsrange" => format!("tsrange(NULL, {}, '{bounds}')", moment("timestamp", numbers)?),
        "int4multirange" => two("int4range")?,
        "nummultirange" => two("numrange")?,
        _ => return None,
    })
}

fn float(dice: &mut Dice) -> String {
    let value = match dice.below(3) {
        0 => f64::from_bits(dice.number()),
        1 => dice.number().cast_signed() as f64 / 1e15,
        _ => *dice.pick(&[0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-300]),
    };
    format!("'{value:?}'::float8").replace("inf", "Infinity")
}

fn point(dice: &mut Dice) -> String {
    format!("point({}, {})", float(dice), float(dice))
}

fn text(dice: &mut Dice) -> String {
    const PIECES: [&str; 9] = ["é", "\u{1F600}", "\\", "\"", "{}", "NULL", "\t", ",", "''"];
    let piece = *dice.pick(&PIECES);
    format!("concat({}, '{piece}')", words(dice))
}

/// In ASCII: what else is a word depends on a server's locale.
fn words(dice: &mut Dice) -> String {
    const PIECES: [&str; 14] =
        ["a", "the", " ", "''", "\\", "\"", ",", "{}", "()", "NULL", "\t", "<b>&amp;", "'' or ''", "cats"];
    let pieces: Vec<&str> = (0..dice.below(7)).map(|_| *dice.pick(&PIECES)).collect();
    format!("'{}'", pieces.concat())
}

fn vector(dice: &mut Dice) -> String {
    format!(
        "setweight('a:{} b:{} c'::tsvector, '{}')",
        dice.between(1, 20_000),
        dice.between(1, 9),
        dice.pick(&["A", "B", "D"])
    )
}

fn query(dice: &mut Dice, depth: u32) -> String {
    match dice.below(if depth == 0 { 4 } else { 9 }) {
        0 => format!("plainto_tsquery('english', {})", words(dice)),
        1 => "''::tsquery".to_owned(),
        2 => format!("'a:*{}'::tsquery", dice.pick(&["", "A", "BD"])),
        3 => format!("phraseto_tsquery('{}', {})", dice.pick(&["english", "simple"]), words(dice)),
        4 => format!("!! ({})", query(dice, depth - 1)),
        5 => format!(
            "tsquery_phrase({}, {}, {})",
            query(dice, depth - 1),
            query(dice, depth - 1),
            dice.below(5)
        ),
        6 => format!("ts_rewrite({}, 'a', {})", query(dice, depth - 1), query(dice, depth - 1)),
        _ => {
            let operator = dice.pick(&["&&", "||", "<->"]);
            format!("({} {operator} {})", query(dice, depth - 1), query(dice, depth - 1))
        }
    }
}

fn json(dice: &mut Dice, depth: u32) -> String {
    match dice.below(if depth == 0 { 5 } else { 8 }) {
        0 => "null".to_owned(),
        1 => format!("{}.{}e{}", dice.number().cast_signed() >> 40, dice.below(100), dice.below(40)),
        2 => "\"\\u0001 \\\\ \\\" é\"".to_owned(),
        3 => "\"\"".to_owned(),
        4 => (*dice.pick(&["true", "-0", "1.50", "0.10e-3"])).to_owned(),
        5 | 6 => format!("[{}, {}]", json(dice, depth - 1), json(dice, depth - 1)),
        _ => format!(
            "{{\"a\": {}, \"{}\": {}}}",
            json(dice, depth - 1),
            dice.pick(&["a", "b", ""]),
            json(dice, depth - 1)
        ),
    }
}

fn path(dice: &mut Dice, depth: u32) -> String {
    match dice.below(if depth == 0 { 5 } else { 10 }) {
        0 => "$".to_owned(),
        1 => format!("{}", dice.number().cast_signed() >> 40),
        2 => "$.a[*].\"b c\"".to_owned(),
        3 => "$x".to_owned(),
        4 => "1.5e3".to_owned(),
        5 => format!(
            "({} {} {})",
            path(dice, depth - 1),
            dice.pick(&["+", "-", "*", "/", "%"]),
            path(dice, depth - 1)
        ),
        6 => format!(
            "({}).{}()",
            path(dice, depth - 1),
            dice.pick(&["size", "type", "abs", "double", "keyvalue"])
        ),
        7 => format!("- ({})", path(dice, depth - 1)),
        8 => format!("$.a ? (@.b {} {})", dice.pick(&["==", "<", "<>"]), path(dice, depth - 1)),
        _ => format!("$.**{{{} to last}} ? (exists (@[{}]))", dice.below(3), path(dice, depth - 1)),
    }
}

fn xml(dice: &mut Dice, depth: u32) -> String {
    match dice.below(if depth == 0 { 5 } else { 8 }) {
        0 => format!("xmlelement(name a, {})", text(dice)),
        1 => format!("xmlcomment(replace({}, '-', ''))", text(dice)),
        2 => format!("xmlforest({} AS \"b c\")", text(dice)),
        3 => format!("xmlelement(name a, chr({}))", *dice.pick(&[9, 10, 13, 31, 133, 8232, 65533, 65534])),
        4 => "xmlparse(content 'x<y/>z')".to_owned(),
        5 => {
            format!("xmlelement(name \"a:b\", xmlattributes({} AS c), {})", text(dice), xml(dice, depth - 1))
        }
        6 => format!("xmlconcat({}, {})", xml(dice, depth - 1), xml(dice, depth - 1)),
        _ => format!("xmlroot({}, version '1.{}', standalone yes)", xml(dice, depth - 1), dice.below(2)),
    }
}
