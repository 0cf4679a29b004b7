//! What a daemon has asked of the API, held against the roles that the chart gives its account.
//!
//! The API of scenarios has no authorizer, so that a request without a right is answered as any other. Pure.

use serde::Deserialize;

use crate::api::PodRequest;

/// Path of the kubelet's own server, which asks the API server for this right.
const CONFIGZ: &str = "/configz";

/// A rule of a role.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// Requests that no rule allows, each once, as `VERB RESOURCE GROUP`.
pub fn not_allowed(requests: &[PodRequest], rules: &[RoleRule]) -> Vec<String> {
    let mut found = Vec::new();
    for request in requests {
        for (verb, resource, group) in needed(request) {
            let is_by = |rule: &RoleRule| {
                let has = |list: &[String], one: &str| list.iter().any(|listed| listed == one);
                has(&rule.api_groups, &group) && has(&rule.resources, &resource) && has(&rule.verbs, verb)
            };
            let told = format!("{verb} {resource} {group}");
            if !rules.iter().any(is_by) && !found.contains(&told) {
                found.push(told);
            }
        }
    }
    found
}

/// Verbs, resource and group of a request; an apply that creates needs two verbs.
fn needed(request: &PodRequest) -> Vec<(&'static str, String, String)> {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    if path == CONFIGZ {
        return vec![("get", "nodes/configz".to_owned(), String::new())];
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return vec![("get", path.to_owned(), String::new())],
    };
    let rest = if let ["namespaces", _, rest @ ..] = rest { rest } else { rest };
    let resource = rest.first().copied().unwrap_or_default();
    let is_watch = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
    let verbs: &[&str] = match (request.method.as_str(), rest.len()) {
        ("GET", 2) => &["get"],
        ("GET", _) if is_watch => &["watch"],
        ("GET", _) => &["list"],
        ("PATCH", _) if request.status == Some(201) => &["create", "patch"],
        ("PATCH", _) => &["patch"],
        ("POST", _) => &["create"],
        ("PUT", _) => &["update"],
        _ => &["delete"],
    };
    verbs.iter().map(|verb| (*verb, resource.to_owned(), group.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    fn request(method: &str, path: &str, status: u16) -> PodRequest {
        PodRequest { method: method.to_owned(), path: path.to_owned(), status: Some(status) }
    }

    #[test]
    fn requests_need_the_verbs_of_the_api() {
        let states = "/apis/numa-enforcer.io/v1alpha1/numanodestates/a?fieldManager=x";
        for (request, wanted) in [
            (request("GET", "/api/v1/nodes/a", 200), &["get nodes "][..]),
            (request("GET", "/api/v1/pods?fieldSelector=x", 200), &["list pods "]),
            (request("GET", "/api/v1/pods?watch=true&x=y", 200), &["watch pods "]),
            (request("GET", "/configz", 200), &["get nodes/configz "]),
            (
                request("PATCH", states, 201),
                &["create numanodestates numa-enforcer.io", "patch numanodestates numa-enforcer.io"],
            ),
            (
                request("POST", "/apis/events.k8s.io/v1/namespaces/x/events", 201),
                &["create events events.k8s.io"],
            ),
            (request("DELETE", "/api/v1/namespaces/x/pods/p", 200), &["delete pods "]),
        ] {
            assert_eq!(not_allowed(std::slice::from_ref(&request), &[]), wanted, "{request:?}");
        }
    }

    #[test]
    fn roles_of_the_chart_allow_what_they_name_and_nothing_else() {
        let rules = preset::rights().unwrap();
        let lease = "/apis/coordination.k8s.io/v1/namespaces/numa-enforcer/leases/numa-enforcer-a";
        let allowed = [request("PATCH", lease, 201), request("GET", "/api/v1/nodes/a", 200)];
        assert_eq!(not_allowed(&allowed, &rules), Vec::<String>::new());
        let not = [request("GET", "/api/v1/nodes", 200), request("DELETE", lease, 200)];
        assert_eq!(not_allowed(&not, &rules), ["list nodes ", "delete leases coordination.k8s.io"]);
    }
}
