//! Opaque configurations of a claim's allocation, and which of them a result has.

use super::{ClaimOptions, Field, FieldError, MAX_NAME, MAX_REQUEST};

/// Most configurations of an allocation: those of a class and of a claim.
const MAX_CONFIGS: usize = 64;
/// Most requests that one configuration names.
const MAX_REQUESTS: usize = 32;

/// A configuration for this driver.
#[derive(Debug)]
pub(super) struct Configuration {
    /// Its path in the claim.
    path: String,
    is_of_claim: bool,
    /// Requests that it is for; all if empty.
    requests: Vec<String>,
    options: ClaimOptions,
}

impl Configuration {
    /// Is it for this request? One for `place` is also for `place/two-nodes`.
    fn is_for(&self, request: &str) -> bool {
        let is_named = |name: &String| {
            request.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.requests.is_empty() || self.requests.iter().any(is_named)
    }
}

/// The configurations for this driver; those for others are passed over.
pub(super) fn read(devices: &Field<'_>, driver: &str) -> Result<Vec<Configuration>, FieldError> {
    let mut configurations = Vec::new();
    for field in devices.list_of("config", MAX_CONFIGS)? {
        let Some(opaque) = field.get("opaque")? else { continue };
        if opaque.need("driver")?.text(MAX_NAME)? != driver {
            continue;
        }
        let source = field.need("source")?;
        let is_of_claim = match source.text(MAX_NAME)? {
            "FromClaim" => true,
            "FromClass" => false,
            _ => return Err(source.error("FromClass or FromClaim is expected")),
        };
        let requests = field.list_of("requests", MAX_REQUESTS)?;
        let requests = requests.iter().map(|name| name.text(MAX_REQUEST).map(str::to_owned));
        configurations.push(Configuration {
            path: field.path().to_owned(),
            is_of_claim,
            requests: requests.collect::<Result<_, _>>()?,
            options: ClaimOptions::read(&opaque.need("parameters")?)?,
        });
    }
    Ok(configurations)
}

/// Options of the result of a request: at most one configuration of its class, and one of the claim over it.
pub(super) fn options_of(
    configurations: &[Configuration],
    request: &str,
    result: &Field<'_>,
) -> Result<ClaimOptions, FieldError> {
    let of = |is_of_claim: bool| {
        let own = |one: &&Configuration| one.is_of_claim == is_of_claim && one.is_for(request);
        let mut found = configurations.iter().filter(own);
        match (found.next(), found.next()) {
            (Some(first), Some(second)) => {
                let problem = format!("it is for the same request {request} as {}", first.path);
                Err(FieldError { field: second.path.clone(), problem })
            }
            (one, _) => Ok(one),
        }
    };
    let (class, claim) = (of(false)?, of(true)?);
    let none = ClaimOptions::default();
    let options = claim.map_or(none, |one| one.options).over(class.map_or(none, |one| one.options));
    match (options.contradiction().or(options.unsupported()), claim.or(class)) {
        (Some((name, problem)), Some(source)) => Err(FieldError {
            field: format!("{}.opaque.parameters.{name}", source.path),
            problem: problem.into(),
        }),
        (Some((_, problem)), None) => Err(result.error(problem)),
        (None, _) => Ok(options),
    }
}
