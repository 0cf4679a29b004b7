//! systemd as process 1 of a guest, asked by its own commands.

use std::{env, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

use crate::{
    cgroup::Cgroup,
    ids::{self, Ids},
    process::{self, Output},
    wait,
};

/// Units that a scenario makes; gone at the next boot.
const UNITS: &str = "/run/systemd/system";

/// Longest time for a command: a unit may take long to start under emulation, a hang is a failure.
const LIMIT: Duration = Duration::from_mins(5);

/// `systemctl` with these arguments, to its end.
pub fn systemctl(arguments: &[&str]) -> Result<Output> {
    process::run(Command::new("systemctl").arg("--no-pager").args(arguments), LIMIT)
}

/// The same, which must succeed.
pub fn must(arguments: &[&str]) -> Result<()> {
    let output = systemctl(arguments)?;
    let command = arguments.join(" ");
    ensure!(output.status == Some(0), "systemctl {command}: {:?} {}", output.status, output.stderr.trim());
    Ok(())
}

/// A property of a unit, as `systemctl show` prints it.
pub fn property(unit: &str, name: &str) -> Result<String> {
    let output = systemctl(&["show", "--value", "--property", name, "--", unit])?;
    ensure!(output.status == Some(0), "{name} of {unit}: {}", output.stderr.trim());
    Ok(output.stdout.trim().to_owned())
}

/// A service that holds memory and touches it.
#[derive(Debug)]
pub struct HogService {
    /// Name of the unit.
    pub unit: String,
    /// Its cgroup.
    pub cgroup: Cgroup,
}

impl HogService {
    /// Makes and starts it, and waits until its memory is there.
    pub fn start(name: &str, mebibytes: usize) -> Result<Self> {
        let unit = format!("{name}.service");
        let cgroup = Cgroup::at(&format!("/system.slice/{unit}"));
        let program = env::current_exe().context("own path")?;
        let text = format!(
            "[Service]\nExecStart={} hog --mebibytes {mebibytes} --pause-ms 10 --cgroup {}\n",
            program.display(),
            cgroup.folder().display()
        );
        write(Path::new(UNITS).join(&unit).as_path(), &text)?;
        must(&["daemon-reload"])?;
        must(&["start", &unit])?;
        let service = Self { unit, cgroup };
        let size = u64::try_from(mebibytes << 20)?;
        wait::until(&format!("{} has its memory", service.unit), LIMIT, || {
            let bytes: u64 = service.cgroup.read("memory.current")?.parse()?;
            Ok((bytes >= size).then_some(()))
        })?;
        Ok(service)
    }

    /// CPUs that its process may use, by `/proc`.
    pub fn cpus_allowed(&self) -> Result<Ids> {
        self.allowed("Cpus_allowed_list:")
    }

    /// Nodes on which its process may allocate, by `/proc`.
    pub fn mems_allowed(&self) -> Result<Ids> {
        self.allowed("Mems_allowed_list:")
    }

    /// `AllowedCPUs` and `AllowedMemoryNodes`.
    pub fn properties(&self) -> Result<(String, String)> {
        Ok((property(&self.unit, "AllowedCPUs")?, property(&self.unit, "AllowedMemoryNodes")?))
    }

    fn allowed(&self, field: &str) -> Result<Ids> {
        let pid = property(&self.unit, "MainPID")?;
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(field));
        ids::parse(value.with_context(|| format!("{path} has no {field}"))?)
    }
}

/// Writes a file, and makes its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file in no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
