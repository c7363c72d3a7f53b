//! Transactions and their answers as the JSON gateway writes them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::etcd::store::{Compare, KeyValue, Operation, Range, Txn, TxnAnswer};

/// The body of a request.
pub(super) fn txn(txn: &Txn) -> Value {
    json!({
        "compare": txn.compares.iter().map(compare).collect::<Vec<_>>(),
        "success": txn.then.iter().map(operation).collect::<Vec<_>>(),
        "failure": txn.otherwise.iter().map(operation).collect::<Vec<_>>(),
    })
}

/// The body of an answer; the error says what is wrong with it.
pub(super) fn txn_answer(answer: &Value) -> Result<TxnAnswer, String> {
    let header = answer.get("header").ok_or("no header")?;
    let mut found = Vec::new();
    for response in list(answer, "responses")? {
        if let Some(range) = response.get("response_range") {
            let kvs = list(range, "kvs")?;
            found.push(kvs.iter().map(key_value).collect::<Result<_, _>>()?);
        }
    }
    let succeeded = answer.get("succeeded").and_then(Value::as_bool).unwrap_or_default();
    Ok(TxnAnswer { succeeded, revision: number(header, "revision")?, found })
}

/// A number, which is zero when it is absent.
pub(super) fn number(of: &Value, name: &str) -> Result<i64, String> {
    match of.get(name) {
        None => Ok(0),
        Some(Value::String(text)) => text.parse().map_err(|_| format!("{name} is \"{text}\"")),
        Some(other) => other.as_i64().ok_or_else(|| format!("{name} is {other}")),
    }
}

fn compare(compare: &Compare) -> Value {
    match compare {
        Compare::WrittenAt(key, revision) => json!({
            "key": base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()
        }),
        Compare::Exists(key) => json!({
            "key": base64(key), "target": "CREATE", "result": "GREATER", "create_revision": "0"
        }),
        Compare::Missing(key) => json!({
            "key": base64(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"
        }),
        Compare::Is(key, value) => json!({
            "key": base64(key), "target": "VALUE", "result": "EQUAL", "value": base64(value)
        }),
    }
}

fn operation(operation: &Operation) -> Value {
    match operation {
        Operation::Put(key, value) => {
            json!({ "request_put": { "key": base64(key), "value": base64(value) } })
        }
        Operation::Delete(from, to) => {
            json!({ "request_delete_range": { "key": base64(from), "range_end": base64(to) } })
        }
        Operation::Read(range) => json!({ "request_range": read(range) }),
    }
}

fn read(range: &Range) -> Value {
    let mut body = json!({
        "key": base64(&range.from), "limit": range.limit.to_string(), "keys_only": range.keys_only
    });
    if let Some(to) = &range.to {
        body["range_end"] = base64(to).into();
    }
    if range.descending {
        body["sort_order"] = "DESCEND".into();
        body["sort_target"] = "KEY".into();
    }
    body
}

fn key_value(kv: &Value) -> Result<KeyValue, String> {
    let bytes = |name: &str| match kv.get(name) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => BASE64_STANDARD.decode(text).map_err(|error| format!("{name}: {error}")),
        Some(_) => Err(format!("{name} is no text")),
    };
    let key = String::from_utf8(bytes("key")?).map_err(|_| "a key is no text".to_owned())?;
    Ok(KeyValue { key, value: bytes("value")?, written_at: number(kv, "mod_revision")? })
}

fn list<'v>(of: &'v Value, name: &str) -> Result<&'v [Value], String> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(all)) => Ok(all),
        Some(_) => Err(format!("{name} is no list")),
    }
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_zero() {
        let answer = txn_answer(&json!({ "header": {} })).unwrap();
        assert_eq!(answer, TxnAnswer { succeeded: false, revision: 0, found: vec![] });
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for wrong in [
            json!({}),
            json!({ "header": { "revision": "x" } }),
            json!({ "header": {}, "responses": 3 }),
            json!({ "header": {}, "responses": [{ "response_range": { "kvs": [{ "key": "%" }] } }] }),
        ] {
            assert!(txn_answer(&wrong).is_err(), "{wrong}");
        }
    }
}
