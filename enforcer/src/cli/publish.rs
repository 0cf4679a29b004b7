//! `numa-enforcer publish --once`: what this node tells its cluster, printed, compared or written once.

use std::{
    io::{ErrorKind, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use anyhow::{Context as _, bail};
use enforcer_core::{
    cluster::exported::ExportedKind,
    policy::{ControlSettings, KubeletSettings, Policy},
};
use enforcer_host::HostRoot;
use serde_json::Value;
use similar::TextDiff;

use super::{Exit, UsageError, args, config_file, exit::of_config, root};
use crate::{
    config::read_config,
    publish::{NodeOnce, WrittenObject},
};

/// What to do with which objects.
pub(super) struct Options {
    host: HostRoot,
    policy: Policy,
    task: Task,
    format: args::YamlOrJson,
}

enum Task {
    Print(WrittenObject),
    Compare(Vec<WrittenObject>),
    Write(Vec<WrittenObject>),
}

impl TryFrom<args::PublishArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::PublishArgs) -> anyhow::Result<Self> {
        let policy = args.config.as_deref().map(read_policy).transpose()?.unwrap_or_default();
        let host = root::resolve(args.root.as_deref())?;
        if args.root.is_some() && policy.kubelet.root_dir == KubeletSettings::default().root_dir {
            let expected = "--root: the files of the kubelet are not below it: --config names them \
                            (kubelet.root_dir)";
            return Err(UsageError(expected.into()).into());
        }
        let named = args.print.map(WrittenObject::from);
        let task = match (named, args.diff) {
            (Some(object), false) => Task::Print(object),
            (Some(object), true) => Task::Compare(vec![object]),
            (None, true) => Task::Compare(published(&policy)),
            (None, false) => Task::Write(published(&policy)),
        };
        Ok(Self { host, policy, task, format: args.output })
    }
}

/// The policy of the file. Here the cluster's settings have an effect without `cluster.publish`.
fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let mut configured = read_config(path).map_err(of_config)?;
    configured.notes.retain(|note| !note.ends_with("no effect: cluster.publish is false"));
    Ok(config_file::log_notes(configured))
}

impl From<args::PublishedName> for WrittenObject {
    fn from(name: args::PublishedName) -> Self {
        match name {
            args::PublishedName::Own => Self::Own,
            args::PublishedName::Nrt => Self::Exported(ExportedKind::Nrt),
            args::PublishedName::Numatopology => Self::Exported(ExportedKind::Numatopology),
        }
    }
}

/// The objects that the daemon with this policy publishes.
fn published(policy: &Policy) -> Vec<WrittenObject> {
    let also = policy.cluster.also_publish.iter().map(|kind| WrittenObject::Exported(*kind));
    [WrittenObject::Own].into_iter().chain(also).collect()
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { host, policy, task, format } = options;
    match task {
        Task::Print(object) => {
            let node = NodeOnce::read(host, policy)?;
            out.write_all(written(&node.object(*object)?, *format)?.as_bytes())?;
            Ok(Exit::Ok)
        }
        Task::Compare(objects) => {
            let node = NodeOnce::ask(host, policy)?;
            let mut exit = Exit::Ok;
            for object in objects {
                let difference = difference(&node, *object, *format)?;
                if !difference.is_empty() {
                    exit = Exit::Different;
                }
                out.write_all(difference.as_bytes())?;
            }
            Ok(exit)
        }
        Task::Write(objects) => {
            refuse_beside_daemon(&policy.control)?;
            let node = NodeOnce::ask(host, policy)?;
            for object in objects {
                let done = if node.write(*object)? { "written" } else { "unchanged" };
                writeln!(out, "{}/{}: {done}", object.plural(), node.node())?;
            }
            Ok(Exit::Ok)
        }
    }
}

/// A daemon refuses to go on from a revision that is newer than its own, so that two do not write in turns.
fn refuse_beside_daemon(control: &ControlSettings) -> anyhow::Result<()> {
    if !control.enabled {
        return Ok(());
    }
    let socket = control.socket.display();
    match UnixStream::connect(&control.socket) {
        Ok(_daemon) => bail!(
            "{socket}: a daemon runs here, which publishes by itself with cluster.publish; nothing is written"
        ),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(()),
        Err(error) => Err(error).with_context(|| {
            format!("{socket}: it is not known whether a daemon runs here; nothing is written")
        }),
    }
}

/// Differences between the object in the cluster and that of the node now; empty if there are none.
fn difference(node: &NodeOnce, object: WrittenObject, format: args::YamlOrJson) -> anyhow::Result<String> {
    let (live, now) = node.both(object)?;
    if live.as_ref() == Some(&now) {
        return Ok(String::new());
    }
    let live = live.map(|live| written(&live, format)).transpose()?.unwrap_or_default();
    let now = written(&now, format)?;
    let name = format!("{}/{}", object.plural(), node.node());
    let diff = TextDiff::from_lines(&live, &now);
    Ok(diff.unified_diff().header(&format!("cluster/{name}"), &format!("node/{name}")).to_string())
}

fn written(object: &Value, format: args::YamlOrJson) -> anyhow::Result<String> {
    let mut text = Vec::new();
    match format {
        args::YamlOrJson::Json => enforcer_report::json::write(object, &mut text)?,
        args::YamlOrJson::Yaml => {
            text = serde_saphyr::to_string(object).context("writing YAML")?.into_bytes();
            if !text.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
