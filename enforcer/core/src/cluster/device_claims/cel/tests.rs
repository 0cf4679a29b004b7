#![expect(clippy::needless_raw_string_hashes, reason = "most of the expressions have quotes")]

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{super::objects::read_device_for_tests, *};

fn device() -> Device {
    read_device_for_tests(&serde_json::json!({
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "a100"},
            "driverVersion": {"version": "550.54.1"},
            "index": {"int": 3},
            "healthy": {"bool": true},
            "dra.net/rdma": {"bool": false},
            "resource.kubernetes.io/numaNode": {"int": 1},
            "roots": {"strings": ["pci0000:00", "pci0000:10"]},
        },
        "capacity": {"memory": {"value": "80Gi"}, "other.io/cpu": {"value": "1500m"}},
        "allowMultipleAllocations": true,
    }))
}

fn result(text: &str) -> String {
    match Selector::parse(text) {
        Err(not) => format!("{not}"),
        Ok(selector) => match selector.holds("gpu.example.com", &device()) {
            Ok(holds) => holds.to_string(),
            Err(error) => format!("error: {error}"),
        },
    }
}

#[test]
fn selectors_hold_as_in_kubernetes() {
    const G: &str = r#"device.attributes["gpu.example.com"]"#;
    for (text, expected) in [
        (r#"device.driver == "gpu.example.com""#, true),
        (r#"device.driver == 'numa-enforcer.io'"#, false),
        (r#"device.driver != "x" && G.model == "a100""#, true),
        (r#"G.model in ["h100", "a100"]"#, true),
        (r#"G.model in []"#, false),
        ("G.index == 3 && G.index != 4 && G.index < 4 && G.index <= 3 && G.index > -1 && G.index >= 3", true),
        ("G.healthy", true),
        ("!G.healthy || device.allowMultipleAllocations", true),
        ("!!G.healthy", true),
        (r#"device.attributes["dra.net"].rdma"#, false),
        (r#"device.attributes["resource.kubernetes.io"].numaNode == 1"#, true),
        // Values of two types are unequal.
        (r#"G.index == "3""#, false),
        ("G.healthy == 1", false),
        // Domains and fields that are absent.
        (r#"has(G.model) && !has(G.other)"#, true),
        (r#"has(device.attributes["nothing.io"].model)"#, false),
        (r#""model" in G && !("other" in G)"#, true),
        (r#""gpu.example.com" in device.attributes"#, true),
        (r#""nothing.io" in device.attributes"#, false),
        (r#"G.?other.orValue("none") == "none""#, true),
        (r#"device.attributes[?"nothing.io"].?model.orValue("x") == "x""#, true),
        (r#"G.?model.hasValue()"#, true),
        // An error that does not decide is passed over, on either side.
        (r#"G.other == 1 || G.healthy"#, true),
        (r#"G.healthy || G.other == 1"#, true),
        (r#"G.other == 1 && !G.healthy"#, false),
        // Capacities.
        (r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) == 0"#, true),
        (r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("81Gi")) >= 0"#, false),
        (r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))"#, true),
        (r#"device.capacity["other.io"].cpu == quantity("1.5")"#, true),
        (r#"device.capacity["other.io"].cpu.isLessThan(quantity("2"))"#, true),
        // Versions.
        (r#"G.driverVersion.isGreaterThan(semver("535.0.0"))"#, true),
        (r#"G.driverVersion.compareTo(semver("550.54.1-rc.1")) == 1"#, true),
        (r#"G.driverVersion.major() == 550 && G.driverVersion.minor() > 5"#, true),
        (r#"semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10"))"#, true),
        // Texts.
        (r#"G.model.startsWith("a") && G.model.endsWith("00") && G.model.contains("10")"#, true),
        (r#"G.model.upperAscii() == "A100" && size(G.model) == 4"#, true),
        ("G.index == 3 ? G.model == 'a100' : false", true),
        (r#"cel.bind(own, G, own.healthy && own.index == 3)"#, true),
        ("// all\ntrue", true),
        (r#""pci0000:10" in G.roots && G.roots.size() == 2 && G.roots[0] == "pci0000:00""#, true),
        ("(1 == 1) == true", true),
        (r#""a\"b" == 'a"b'"#, true),
    ] {
        let written = text
            .replace("G.", &format!("{G}."))
            .replace("G)", &format!("{G})"))
            .replace("in G", &format!("in {G}"))
            .replace("G,", &format!("{G},"));
        assert_eq!(result(&written), expected.to_string(), "{written}");
    }
}

#[test]
fn errors_end_the_search_of_the_scheduler() {
    for (text, expected) in [
        (r#"device.attributes["gpu.example.com"].other == 1"#, "no such key: `other`"),
        (r#"device.attributes["nothing.io"].model == "x""#, "no such key: `model`"),
        ("device.something", "no such key: `something`"),
        (r#"device.attributes["gpu.example.com"].model < 3"#, "no order of a string and a int"),
        (r#"device.attributes["gpu.example.com"].model"#, "a bool is expected, not a string"),
        (r#"device.attributes["gpu.example.com"].model && true"#, "a bool is expected, not a string"),
        (r#"quantity("much") == quantity("1")"#, "`much` is no quantity"),
        (r#"device.driver.compareTo(quantity("1")) == 0"#, "no order of a string and a quantity"),
        (r#"device.attributes == device.capacity"#, "maps are not compared"),
    ] {
        assert_eq!(result(text), format!("error: {expected}"), "{text}");
    }
}

#[test]
fn anything_else_is_not_understood() {
    for (text, problem) in [
        ("", "a value is expected, not its end"),
        ("device.driver.matches('a.*')", "the function `matches`"),
        ("device.attributes['x'].list.exists(1, 2)", "the function `exists`"),
        ("size(1, 2)", "`size` with other than one argument"),
        ("1 + 1 == 2", "`+`"),
        ("1.5 < 2", "the number at `1.5 < 2`"),
        ("other.driver == 'x'", "the name `other`"),
        ("device.driver == r'x'", "texts with the prefix r"),
        ("device.driver == 'x", "a text without its closing quote"),
        ("device.driver == 'x' device", "`device` after the end"),
        ("has(device)", "has() of something else than a field"),
        ("device.driver ==", "a value is expected, not its end"),
        ("((((((((((((((((((((((true))))))))))))))))))))))", "nested more than 20 deep"),
        ("device.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a", "more than 16 fields in a row"),
        ("99999999999999999999 == 1", "the number at `99999999999999999999 == 1`"),
    ] {
        let found = result(text);
        assert!(found.starts_with("not understood: ") && found.contains(problem), "{text}: {found}");
    }
    assert!(Selector::parse(&"!".repeat(20_000)).is_err());
    assert!(Selector::parse(&format!("{}true", "!".repeat(10_000))).is_ok());
}

#[test]
fn cost_is_bounded() {
    let mut text = "[1, 2]".to_owned();
    let mut body = String::new();
    for at in 0..18 {
        let _ = write!(body, "cel.bind(v{at}, {text}, ");
        text = format!("[v{at}, v{at}]");
    }
    let _ = write!(body, "{text} == {text}{}", ")".repeat(18));
    assert_eq!(result(&body), "error: the expression costs too much");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        result(&text);
    }

    #[test]
    fn no_row_of_tokens_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "device", ".", ".?", "attributes", "[", "[?", "]", "\"gpu.example.com\"", "model", "(", ")", "!", "&&",
        "||", "==", "in", "<", "quantity", "semver", "has", "cel", "bind", ",", "x", "1", "-", "true", "?", ":",
        "compareTo", "capacity", "orValue", "'a'",
    ]), 0..40)) {
        result(&parts.join(" "));
    }
}
