//! Pressure files (Documentation/accounting/psi.rst). The `full` line is absent from `cpu.pressure` of
//! kernels before 5.13.

use super::ParseError;
use crate::sample::{Pressure, PressureLine};

/// Reads a pressure file.
pub fn parse_pressure(text: &str) -> Result<Pressure, ParseError> {
    let mut some = None;
    let mut full = None;
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("some", figures)) => some = Some(parse_line(figures)?),
            Some(("full", figures)) => full = Some(parse_line(figures)?),
            _ => {}
        }
    }
    let some = some.ok_or_else(|| ParseError::new("the `some` line of a pressure file", text))?;
    Ok(Pressure { some, full })
}

fn parse_line(figures: &str) -> Result<PressureLine, ParseError> {
    let figure = |name: &str| {
        let value =
            figures.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.ok_or_else(|| ParseError::new("avg10, avg60, avg300 and total of a pressure file", figures))
    };
    let percent = |name| {
        let text: &str = figure(name)?;
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        value.ok_or_else(|| ParseError::new("a percentage", text))
    };
    let total = figure("total")?;
    Ok(PressureLine {
        avg10: percent("avg10")?,
        avg60: percent("avg60")?,
        avg300: percent("avg300")?,
        total_us: total.parse().ok().ok_or_else(|| ParseError::new("microseconds", total))?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_both_lines_and_one_alone() {
        let some = PressureLine { avg10: 1.5, avg60: 0.25, avg300: 0.0, total_us: 812_345 };
        let line = "some avg10=1.50 avg60=0.25 avg300=0.00 total=812345\n";
        assert_eq!(parse_pressure(line).unwrap(), Pressure { some, full: None });
        let both = format!("{line}full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
        assert_eq!(parse_pressure(&both).unwrap().full.unwrap().total_us, 7);
    }

    #[test]
    fn refuses_nonsense() {
        for text in [
            "",
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=7",
            "some avg10=0.00 avg60=0.00 total=7",
            "some avg10=NaN avg60=0.00 avg300=0.00 total=7",
            "some avg10=inf avg60=0.00 avg300=0.00 total=7",
            "some avg10=-1 avg60=0.00 avg300=0.00 total=7",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=-7",
            "some avg10=0.00 avg60=0.0",
        ] {
            assert!(parse_pressure(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_pressure_or_an_error(text in any::<String>(), noise in "(some|full)( (avg10|avg60|avg300|total)=[0-9.e+]{0,6}){0,5}") {
            let _ = parse_pressure(&text);
            if let Ok(pressure) = parse_pressure(&noise) {
                prop_assert!(pressure.some.avg10.is_finite());
            }
        }
    }
}
