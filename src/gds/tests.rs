//! The guards and the chain over made-up systems.

use super::*;
use crate::config::GdsCause;
use std::time::Duration;
use uringload_sys::block::{BlockDevice, BlockKind, QueueLimits};

/// A system with nvidia-fs on which every guard holds.
fn native() -> Facts {
    Facts {
        kernel_release: "6.8.0".into(),
        modules: Some(vec!["nvidia_fs".into(), "nvidia".into()]),
        nvidia_fs: true,
        nvidia_fs_devices: true,
        p2pdma: Some(true),
        driver: Some(NvidiaDriver { version: "570.86.15".into(), open: true, registry: String::new() }),
        udev: true,
        nvme_multipath: Some(false),
        ..Facts::default()
    }
}

/// A system that uses P2PDMA.
fn peer_to_peer() -> Facts {
    let registry = "RMForceStaticBar1=1;RmForceDisableIomapWC=1;".into();
    Facts {
        modules: Some(vec!["nvidia".into()]),
        nvidia_fs: false,
        nvidia_fs_devices: false,
        driver: Some(NvidiaDriver { version: "565.57.01".into(), open: true, registry }),
        gpus: vec![gpu(Some(128 << 30), Some(80 << 30))],
        ..native()
    }
}

fn gpu(bar1: Option<u64>, p2pmem: Option<u64>) -> GpuBar {
    GpuBar { address: "0000:3b:00.0".into(), bar1, p2pmem }
}

fn cause(facts: &Facts) -> Cause {
    guard(facts).expect_err("a guard fails").cause
}

fn device(name: &str, kind: BlockKind, members: Vec<BlockDevice>) -> BlockDevice {
    BlockDevice { name: name.into(), kind, queue: QueueLimits::default(), members }
}

fn place(file_system: &str, options: &[&str], device: Option<BlockDevice>) -> Place {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    Place { mount: Some(Mount { file_system: file_system.into(), options, source: "/dev/x".into() }), device }
}

fn state(links: &[Link], what: &str) -> LinkState {
    links.iter().find(|link| link.what == what).unwrap_or_else(|| panic!("no {what} in {links:?}")).state
}

#[test]
fn guards_hold_where_there_is_a_way() {
    assert_eq!(guard(&native()).unwrap(), GdsMode::NvidiaFs);
    assert_eq!(guard(&peer_to_peer()).unwrap(), GdsMode::P2pdma);
}

#[test]
fn guards_fail_in_their_order() {
    // Each system fails the guards of the previous one, except for its first guard.
    let mut facts = Facts { wsl: true, modules: None, udev: false, nvidia_fs: false, p2pdma: None, ..native() };
    assert_eq!(cause(&facts), Cause::Gds(GdsCause::Wsl));
    facts.wsl = false;
    assert_eq!(cause(&facts), Cause::Gds(GdsCause::Modules));
    facts.modules = Some(Vec::new());
    assert_eq!(cause(&facts), Cause::Gds(GdsCause::Path));
    facts.nvidia_fs = true;
    assert_eq!(cause(&facts), Cause::Gds(GdsCause::Udev));
    facts.udev = true;
    assert_eq!(guard(&facts).unwrap(), GdsMode::NvidiaFs);
}

#[test]
fn peer_to_peer_needs_the_kernel_and_a_new_open_driver() {
    for version in ["565.46", "550.144.03", "", "x.y"] {
        let driver = Some(NvidiaDriver { version: version.into(), open: true, registry: String::new() });
        assert_eq!(cause(&Facts { driver, ..peer_to_peer() }), Cause::Gds(GdsCause::Path), "{version:?}");
    }
    let driver = Some(NvidiaDriver { version: "580.1".into(), open: false, registry: String::new() });
    assert_eq!(cause(&Facts { driver, ..peer_to_peer() }), Cause::Gds(GdsCause::Path));
    assert_eq!(cause(&Facts { driver: None, ..peer_to_peer() }), Cause::Gds(GdsCause::Path));
    for p2pdma in [None, Some(false)] {
        assert_eq!(cause(&Facts { p2pdma, ..peer_to_peer() }), Cause::Gds(GdsCause::Path));
    }
}

/// Pages of devices are counted differently since Linux 6.15; the open modules support that since 595.71.
#[test]
fn a_newer_kernel_needs_a_newer_driver() {
    let on = |release: &str, version: &str| {
        let driver = Some(NvidiaDriver { version: version.into(), open: true, registry: String::new() });
        guard(&Facts { kernel_release: release.into(), driver, ..peer_to_peer() }).is_ok()
    };
    for release in ["6.15.0-rc1", "6.18.2-generic", "7.0", "6.15-rc3"] {
        assert!(!on(release, "580.95.05") && !on(release, "595.70"), "{release}");
        assert!(on(release, "595.71.05") && on(release, "600.1"), "{release}");
    }
    for release in ["6.14.11-100.fc41", "6.8.0-45-generic", "5.15.1", ""] {
        assert!(on(release, "580.95.05") && !on(release, "565.46"), "{release}");
    }
}

#[test]
fn an_open_driver_that_is_too_old_is_to_be_a_newer_one() {
    for (release, version, newer) in
        [("6.18.44", "580.159.04", "595.71"), ("6.18.44", "550.1", "595.71"), ("6.8.0", "550.1", "565.47")]
    {
        let open = |version: &str| NvidiaDriver { version: version.into(), open: true, registry: String::new() };
        let facts = Facts { kernel_release: release.into(), driver: Some(open(version)), ..peer_to_peer() };
        let links = chain(&facts, None);
        let link = links.iter().find(|link| link.what == "driver").expect("a link");
        let remedy = link.remedy.expect("a remedy");
        assert!(remedy.starts_with(&format!("install a newer driver, {newer} or later")), "{link:?}");
        assert!(drives_p2pdma(&facts, &open(newer)), "{link:?}");
    }
}

/// The GPU with the smallest window is reported.
#[test]
fn the_window_of_each_gpu_counts() {
    let mut other = gpu(Some(1 << 28), None);
    other.address = "0000:af:00.0".into();
    let facts = Facts { gpus: vec![gpu(Some(128 << 30), Some(80 << 30)), other], ..peer_to_peer() };
    let links = chain(&facts, None);
    let link = links.iter().find(|link| link.what == "GPU's window").expect("a link");
    assert_eq!(
        (link.state, &*link.found),
        (LinkState::Missing, "0000:af:00.0 has a BAR1 of 256 MiB and offers none of it")
    );
    let links = chain(&peer_to_peer(), None);
    let link = links.iter().find(|link| link.what == "GPU's window").expect("a link");
    assert_eq!(&*link.found, "0000:3b:00.0 has a BAR1 of 128 GiB and offers 80 GiB");
}

#[test]
fn a_machine_without_cufile_is_told_at_once_and_is_no_defect() {
    let facts = Facts::read(std::path::Path::new("/no such root"));
    let search = Search { scratch: None, ..Search::default() };
    let start = std::time::Instant::now();
    let step = open(&facts, search, || panic!("nothing is started where a guard fails")).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(
        (step.cause, &*step.got, &*step.wanted),
        (Cause::Gds(GdsCause::Modules), "the pinned path", "GPUDirect Storage")
    );
    assert!(!step.is_degraded());
}

#[test]
fn openings_that_fail_say_why_on_one_line() {
    let driver = OpenError::Driver { error: uringload_sys::cufile::CufileError::from_code(5007), log: None };
    for (error, cause) in [
        (OpenError::Absent("a:\n b".into()), Cause::Gds(GdsCause::Library)),
        (OpenError::Incomplete { library: "l".into(), function: "f" }, Cause::Gds(GdsCause::Library)),
        (OpenError::Configuration(std::io::Error::from_raw_os_error(28)), Cause::Gds(GdsCause::Configuration)),
        (OpenError::Attach("no context".into()), Cause::Gds(GdsCause::Context)),
        (driver, Cause::Gds(GdsCause::Driver)),
        (OpenError::TimedOut { after: OPEN_BOUND, log: None }, Cause::Gds(GdsCause::Timeout)),
        (OpenError::Busy, Cause::Gds(GdsCause::Timeout)),
        (OpenError::Thread("none".into()), Cause::Gds(GdsCause::Driver)),
    ] {
        let step = step(&error);
        assert_eq!(step.cause, cause);
        let line = step.to_string();
        assert!(!line.contains('\n') && line.starts_with("the pinned path instead of GPUDirect Storage: "), "{line}");
    }
    assert_eq!(step(&OpenError::Configuration(std::io::Error::from_raw_os_error(28))).errno, Some(28));
}

#[test]
fn a_whole_chain_has_no_missing_link() {
    let raid = device("md0", BlockKind::Raid, vec![device("nvme0n1", BlockKind::Disk, Vec::new())]);
    let ordered = place("ext4", &["rw", "data=ordered"], Some(raid));
    let plain = place("xfs", &["rw"], Some(device("nvme0n1", BlockKind::Disk, Vec::new())));
    for (facts, place) in [(native(), &ordered), (native(), &plain), (peer_to_peer(), &plain)] {
        let links = chain(&facts, Some(place));
        let missing: Vec<&Link> = links.iter().filter(|link| link.state == LinkState::Missing).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn each_missing_link_is_named_with_the_line_that_mends_it() {
    let nvme = || Some(device("nvme0n1", BlockKind::Disk, Vec::new()));
    let closed = Some(NvidiaDriver { version: "535.1".into(), ..NvidiaDriver::default() });
    let bare = Some(NvidiaDriver { version: "570.1".into(), open: true, registry: String::new() });
    let raid = device("md0", BlockKind::Raid, vec![device("nvme0n1", BlockKind::Disk, Vec::new())]);
    let p2p = peer_to_peer;
    let xfs = || place("xfs", &["rw"], nvme());
    for (what, facts, place, mends) in [
        ("driver", Facts { driver: None, ..p2p() }, xfs(), "driver"),
        ("driver", Facts { driver: closed, ..p2p() }, xfs(), "open"),
        ("driver settings", Facts { driver: bare, ..p2p() }, xfs(), "NVreg_RegistryDwords="),
        ("kernel P2PDMA", Facts { p2pdma: Some(false), ..p2p() }, xfs(), "CONFIG_PCI_P2PDMA"),
        ("GPU's window", Facts { gpus: vec![gpu(Some(256 << 20), None)], ..p2p() }, xfs(), "Resizable BAR"),
        ("GPU's window", Facts { gpus: vec![gpu(None, Some(0))], ..p2p() }, xfs(), "Resizable BAR"),
        ("GPU's window", Facts { gpus: vec![gpu(Some(1 << 37), Some(1 << 28))], ..p2p() }, xfs(), "memory_limit"),
        ("IOMMU", Facts { iommu: Iommu::Translating, ..p2p() }, xfs(), "iommu=pt"),
        ("NVMe multipath", Facts { nvme_multipath: Some(true), ..p2p() }, xfs(), "nvme_core.multipath=N"),
        ("udev data", Facts { udev: false, container: true, ..p2p() }, xfs(), "-v /run/udev:/run/udev:ro"),
        ("module list", Facts { modules: None, ..p2p() }, xfs(), "/proc/modules"),
        ("system", Facts { wsl: true, ..p2p() }, xfs(), "Linux"),
        ("nvidia-fs", Facts { nvidia_fs_devices: false, container: true, ..native() }, xfs(), "/dev/nvidia-fs"),
        ("data's disks", p2p(), place("xfs", &["rw"], Some(raid)), "nvidia-fs"),
        ("data's disks", p2p(), place("xfs", &["rw"], Some(device("vda", BlockKind::Disk, Vec::new()))), "NVMe"),
        ("data's disks", p2p(), place("xfs", &["rw"], None), "NVMe"),
        ("file system", native(), place("ext4", &["rw", "data=journal"], nvme()), "data=ordered"),
        ("file system", native(), place("btrfs", &["rw"], nvme()), "XFS"),
        ("file system", p2p(), place("nfs4", &["rw"], None), "XFS"),
    ] {
        let links = chain(&facts, Some(&place));
        let link = links.iter().find(|link| link.what == what).unwrap_or_else(|| panic!("no {what}"));
        assert_eq!(link.state, LinkState::Missing, "{link:?}");
        assert!(link.remedy.as_ref().is_some_and(|remedy| remedy.contains(mends)), "{link:?}");
    }
}

#[test]
fn links_that_the_other_way_does_not_need_are_no_faults() {
    let facts = Facts { driver: None, p2pdma: Some(false), nvme_multipath: Some(true), ..native() };
    let facts = Facts { gpus: vec![gpu(Some(1 << 37), None)], ..facts };
    let links = chain(&facts, None);
    for what in ["kernel P2PDMA", "NVMe multipath", "driver settings", "GPU's window"] {
        assert_eq!(state(&links, what), LinkState::Unneeded, "{what}");
    }
    assert_eq!(state(&links, "nvidia-fs"), LinkState::Good);
    let links = chain(&peer_to_peer(), None);
    assert_eq!(state(&links, "nvidia-fs"), LinkState::Unneeded);
    assert!(!links.iter().any(|link| link.what == "file system"), "no dataset, no place");
}

#[test]
fn what_a_system_does_not_tell_is_called_unknown() {
    let facts = Facts { p2pdma: None, nvme_multipath: None, gpus: Vec::new(), ..peer_to_peer() };
    let links = chain(&facts, Some(&Place::default()));
    for what in ["kernel P2PDMA", "file system", "GPU's window"] {
        assert_eq!(state(&links, what), LinkState::Unknown, "{what}");
    }
    assert_eq!(state(&links, "NVMe multipath"), LinkState::Good, "no NVMe multipath where there is no such setting");
}

#[test]
fn every_link_says_what_it_means() {
    for facts in [Facts::default(), native(), peer_to_peer()] {
        for link in chain(&facts, Some(&place("xfs", &[], None))) {
            assert!(!link.found.is_empty() && !link.means.is_empty(), "{link:?}");
            assert_eq!(link.remedy.is_some(), link.state == LinkState::Missing, "{link:?}");
            let text = [&link.found, link.means, link.remedy.unwrap_or_default()].concat();
            assert!(!text.contains('\n') && !text.contains("  "), "{link:?}");
        }
    }
}
