//! A Kubernetes API server for custom resources, and its etcd: what tests of published objects talk to.
//!
//! No package of Debian has the program, but Debian unstable has its source and everything that it is made
//! of: `apiextensions-apiserver`, which serves definitions of kinds and their objects with server-side apply,
//! field managers, watches and CEL rules as a cluster does. It has no pods, nodes or RBAC. The packages are
//! unpacked and not installed, and Debian's Go builds the server from them, without a module proxy.
//!
//! Every fresh run pays for the build, so it does without what tests of the daemon do not need: optimisation,
//! debug information, and a file of test support that brings the fake clients of every kind (`UNUSED`).

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{absent_is_fine, apt::Apt, cache};
use crate::{architecture::Architecture, command};

const SUITE: &str = "sid";

/// Its dependencies name the compiler.
const GO: &str = "golang-go";

const ETCD: &str = "etcd-server";

/// What is built, as Go calls it.
const MAIN: &str = "k8s.io/apiextensions-apiserver";

/// Flags of the build: a server that runs for seconds need not be quick.
const FLAGS: [&str; 4] = ["-p=2", "-trimpath", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w"];

/// Growth of the compilers' heap in percent before garbage is collected: they run for a second each.
const GARBAGE: &str = "400";

/// A file of the product that only its tests need, and that brings 56 packages of fake clients.
const UNUSED: &str = "k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_test_context.go";

/// Where Debian has Go's sources.
const SOURCES: &str = "usr/share/gocode/src";

/// The server's name, and etcd's, in the folder that is kept.
const SERVER: &str = "apiextensions-apiserver";
const STORE: &str = "etcd";

/// etcd is linked against a libc that may be newer than the machine's.
const LIBC: &str = "libc6";
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The packages with code that the server is made of. Debian's own dependencies are four times as many: most
/// serve tests. After a change in the suite, `go build` names what it cannot find. The list is renewed with
/// all packages of `apt-cache depends --recurse golang-k8s-apiextensions-apiserver-dev` unpacked and `UNUSED`
/// removed: those that own a folder of `go list -deps -f '{{.Dir}}' k8s.io/apiextensions-apiserver`.
const CODE: [&str; 82] = [
    "golang-cel-cel-go-dev",
    "golang-cel-expr-dev",
    "golang-etcd-server-dev",
    "golang-github-antlr4-go-antlr-dev",
    "golang-github-beorn7-perks-dev",
    "golang-github-blang-semver-dev",
    "golang-github-cenkalti-backoff-v5-dev",
    "golang-github-cespare-xxhash-v2-dev",
    "golang-github-coreos-go-semver-dev",
    "golang-github-coreos-go-systemd-dev",
    "golang-github-davecgh-go-spew-dev",
    "golang-github-docker-spdystream-dev",
    "golang-github-emicklei-go-restful-dev",
    "golang-github-evanphx-json-patch-dev",
    "golang-github-felixge-httpsnoop-dev",
    "golang-github-fsnotify-fsnotify-dev",
    "golang-github-fxamacker-cbor-dev",
    "golang-github-go-logr-logr-dev",
    "golang-github-go-logr-stdr-dev",
    "golang-github-go-openapi-jsonpointer-dev",
    "golang-github-go-openapi-jsonreference-dev",
    "golang-github-go-openapi-swag-dev",
    "golang-github-gogo-protobuf-dev",
    "golang-github-golang-protobuf-1-5-dev",
    "golang-github-google-gnostic-models-dev",
    "golang-github-google-uuid-dev",
    "golang-github-gorilla-websocket-dev",
    "golang-github-grpc-ecosystem-go-grpc-middleware-dev",
    "golang-github-grpc-ecosystem-grpc-gateway-dev",
    "golang-github-json-iterator-go-dev",
    "golang-github-kylelemons-godebug-dev",
    "golang-github-modern-go-concurrent-dev",
    "golang-github-modern-go-reflect2-dev",
    "golang-github-munnerz-goautoneg-dev",
    "golang-github-mxk-go-flowrate-dev",
    "golang-github-nytimes-gziphandler-dev",
    "golang-github-pkg-errors-dev",
    "golang-github-pmezard-go-difflib-dev",
    "golang-github-prometheus-client-golang-dev",
    "golang-github-prometheus-client-model-dev",
    "golang-github-prometheus-common-dev",
    "golang-github-prometheus-procfs-dev",
    "golang-github-spf13-cobra-dev",
    "golang-github-spf13-pflag-dev",
    "golang-github-x448-float16-dev",
    "golang-go.uber-multierr-dev",
    "golang-go.uber-zap-dev",
    "golang-golang-x-crypto-dev",
    "golang-golang-x-exp-dev",
    "golang-golang-x-net-dev",
    "golang-golang-x-oauth2-dev",
    "golang-golang-x-sync-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-term-dev",
    "golang-golang-x-text-dev",
    "golang-golang-x-time-dev",
    "golang-google-genproto-dev",
    "golang-google-grpc-dev",
    "golang-google-protobuf-dev",
    "golang-gopkg-inf.v0-dev",
    "golang-gopkg-natefinch-lumberjack.v2-dev",
    "golang-gopkg-yaml.v2-dev",
    "golang-gopkg-yaml.v3-dev",
    "golang-k8s-api-dev",
    "golang-k8s-apiextensions-apiserver-dev",
    "golang-k8s-apimachinery-dev",
    "golang-k8s-apiserver-dev",
    "golang-k8s-client-go-dev",
    "golang-k8s-component-base-dev",
    "golang-k8s-klog-dev",
    "golang-k8s-kms-dev",
    "golang-k8s-kube-openapi-dev",
    "golang-k8s-sigs-apiserver-network-proxy-dev",
    "golang-k8s-sigs-json-dev",
    "golang-k8s-sigs-randfill-dev",
    "golang-k8s-sigs-structured-merge-diff-v6-dev",
    "golang-k8s-sigs-yaml-dev",
    "golang-k8s-streaming-dev",
    "golang-k8s-utils-dev",
    "golang-opentelemetry-contrib-dev",
    "golang-opentelemetry-otel-dev",
    "golang-opentelemetry-proto-dev",
];

/// Folder with an API server for custom resources and an etcd.
#[derive(Debug)]
pub(crate) struct CrdApi(PathBuf);

impl CrdApi {
    /// The folder: programs `apiextensions-apiserver` and `etcd`, and `etcd`'s own loader and libraries.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

/// Downloads, builds and keeps it.
pub(super) fn fetch(dir: &Path) -> Result<CrdApi> {
    let recipe = [&[SUITE, GO, ETCD, MAIN, UNUSED, GARBAGE, LIBC][..], &FLAGS, &CODE].concat();
    let made = cache::keep(dir, "crd-api", &recipe, |place| {
        fs::create_dir(place).with_context(|| format!("create {}", place.display()))?;
        let scratch = place.join("scratch");
        build(&scratch, place)?;
        fs::remove_dir_all(&scratch).context("remove what was downloaded and compiled")
    })?;
    Ok(CrdApi(made))
}

fn build(scratch: &Path, place: &Path) -> Result<()> {
    let (debs, root) = (scratch.join("debs"), scratch.join("root"));
    fs::create_dir_all(&debs).with_context(|| format!("create {}", debs.display()))?;
    let apt = Apt::of_suite(SUITE, Architecture::Amd64, &scratch.join("apt"))?;
    let dependencies = apt.dependencies(GO)?;
    let version = newest_go(&dependencies)?;
    let (compiler, library) = (format!("golang-{version}-go"), format!("golang-{version}-src"));
    let packages = [&[compiler.as_str(), &library, ETCD, LIBC][..], &CODE].concat();
    apt.unpack(&packages, &debs, &root)?;
    keep_etcd(&root, place)?;
    let code = root.join(SOURCES);
    fs::remove_file(code.join(UNUSED)).or_else(absent_is_fine).context("remove what only tests need")?;
    let go = root.join("usr/lib").join(format!("go-{version}"));
    join_roots(&go, &root)?;
    let mut compile = Command::new(go.join("bin/go"));
    // Nothing of the machine's own Go decides, and nothing is fetched.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GO")) {
        compile.env_remove(name);
    }
    compile
        .env("GOROOT", &go)
        .env("GOPATH", root.join("usr/share/gocode"))
        .env("GOCACHE", scratch.join("cache"))
        .env("GOTMPDIR", scratch)
        .env("GO111MODULE", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOENV", "off")
        .env("GOPROXY", "off")
        .env("CGO_ENABLED", "0")
        .env("GOGC", GARBAGE);
    compile.arg("build").args(FLAGS).arg("-o").arg(place.join(SERVER)).arg(MAIN);
    command::quietly(&mut compile)?;
    ensure!(place.join(SERVER).is_file(), "the build made no {SERVER}");
    Ok(())
}

/// The version of the compiler in the dependencies of [`GO`]: `golang-1.27-go` has 1.27.
fn newest_go(dependencies: &[String]) -> Result<&str> {
    let versions = dependencies.iter().filter_map(|name| name.strip_prefix("golang-")?.strip_suffix("-go"));
    let mut versions = versions.filter(|version| version.starts_with(|first: char| first.is_ascii_digit()));
    versions.next().with_context(|| format!("{GO} depends on no compiler: {dependencies:?}"))
}

/// Debian's Go is in two folders that links to absolute paths join: here they lead into `root`.
fn join_roots(go: &Path, root: &Path) -> Result<()> {
    for folder in [go.to_owned(), go.join("pkg")] {
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let link = entry?.path();
            let Ok(leads) = fs::read_link(&link) else { continue };
            if let Ok(within) = leads.strip_prefix("/") {
                let replaced = fs::remove_file(&link).and_then(|()| symlink(root.join(within), &link));
                replaced.with_context(|| format!("link {}", link.display()))?;
            }
        }
    }
    Ok(())
}

/// Keeps etcd, and the loader and the libraries that it was linked against.
fn keep_etcd(root: &Path, place: &Path) -> Result<()> {
    let kept = |from: PathBuf, name: &str| -> io::Result<()> { fs::rename(from, place.join(name)) };
    kept(root.join("usr/bin/etcd"), STORE).context("keep etcd")?;
    // The loader is a link into the folder of the libraries.
    let loader = fs::canonicalize(root.join(LOADER)).context("find the loader")?;
    fs::copy(&loader, place.join("loader")).context("keep the loader")?;
    kept(root.join(LIBRARIES), "lib").context("keep etcd's libraries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_is_named_by_its_version() {
        let names = |list: &[&str]| -> Vec<String> { list.iter().map(|&name| name.to_owned()).collect() };
        assert_eq!(newest_go(&names(&["golang-src", "golang-1.27-go"])).unwrap(), "1.27");
        assert!(newest_go(&names(&["golang-src", "golang-any-go"])).is_err());
    }

    #[test]
    fn absolute_links_lead_into_the_unpacked_root() {
        let root = tempfile::tempdir().unwrap();
        let go = root.path().join("usr/lib/go-1.27");
        fs::create_dir_all(go.join("pkg")).unwrap();
        symlink("/usr/share/go-1.27/src", go.join("src")).unwrap();
        symlink("tool", go.join("pkg/near")).unwrap();
        join_roots(&go, root.path()).unwrap();
        assert_eq!(fs::read_link(go.join("src")).unwrap(), root.path().join("usr/share/go-1.27/src"));
        assert_eq!(fs::read_link(go.join("pkg/near")).unwrap(), Path::new("tool"));
    }

    #[test]
    fn packages_are_named_once_and_in_order() {
        assert!(CODE.is_sorted_by(|one, next| one < next));
    }
}
