"""A real Slurm on one machine: a controller and three virtual nodes, for the tests that submit jobs.

Skips with the reason where Slurm is not installed or its daemons may not be started (they need root). Nothing of a
system's own Slurm is touched: configuration, state, logs and ports are the fixture's, and munge runs on a socket of its
own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
NODES = ("n1", "n2", "n3")
GPUS = 8
REQUEUE_WAIT_S = 10
"""A requeued job waits until its old credential has expired; Slurm's default for that is 120 s."""
_START_BOUND_S = 60.0


@dataclass(frozen=True)
class Slurm:
    """The running cluster: ``environment`` makes clients find it."""

    environment: Mapping[str, str]

    def run(self, *command: str, timeout: float = 60.0, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=timeout, **options
        )  # type: ignore[call-overload, no-any-return]

    def queue(self) -> list[str]:
        """Return a line (id, state, name) for each job that is waiting, running or ending."""
        done = self.run("squeue", "-h", "-o", "%i %T %j")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def show(self, job: str) -> dict[str, str]:
        """Return what the controller knows of a job."""
        done = self.run("scontrol", "-o", "show", "job", job)
        return dict(re.findall(r"(\w+)=(\S*)", done.stdout.splitlines()[0] if done.stdout else ""))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def configuration(folder: Path, socket_path: Path) -> str:
    host, (controller, *ports) = socket.gethostname(), free_ports(1 + len(NODES))
    cores = os.cpu_count() or 1
    nodes = "".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=2000 "
        f"Gres=gpu:{GPUS}\n"
        for name, port in zip(NODES, ports, strict=True)
    )
    return f"""\
ClusterName=gavel
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={socket_path},cred_expire={REQUEUE_WAIT_S}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0,max_rpc_cnt=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
KillWait=5
CompleteWait=0
MinJobAge=600
MessageTimeout=30
JobRequeue=1
{nodes}PartitionName=debug Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A running cluster of three nodes, n1 to n3, each with 8 GPUs that are only names."""
    missing = [name for name in NEEDED if not (shutil.which(name) or Path("/usr/sbin", name).exists())]
    if missing:
        pytest.skip(
            f"Slurm is not installed ({', '.join(missing)}); apt-get install slurmctld slurmd slurm-client munge"
        )
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons are started as root, and this is not root")
    folder = tmp_path_factory.mktemp("slurm")
    with contextlib.ExitStack() as stack:
        yield _start(folder, stack)


def _start(folder: Path, stack: contextlib.ExitStack) -> Slurm:
    (folder / "state").mkdir()
    munge = _munge(folder, stack)
    (folder / "slurm.conf").write_text(configuration(folder, munge))
    fakes = [folder / f"gpu{number}" for number in range(GPUS)]
    for fake in fakes:
        fake.touch()
    (folder / "gres.conf").write_text("".join(f"NodeName={','.join(NODES)} Name=gpu File={fake}\n" for fake in fakes))
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    running = Slurm(environment)
    for command in (("slurmctld", "-D", "-i"), *(("slurmd", "-D", "-N", name) for name in NODES)):
        _daemon(command, folder / f"{'-'.join(command)}.out", environment, stack)
    stack.callback(running.run, "scancel", "--full", "-u", "root")
    over = threading.Event()
    ticking = threading.Thread(target=_tick, args=(running, over), daemon=True)
    stack.callback(over.set)
    limit = time.monotonic() + _START_BOUND_S
    while running.run("sinfo", "-h", "-N", "-o", "%N %t").stdout.split() != [
        word for name in NODES for word in (name, "idle")
    ]:
        if time.monotonic() > limit:
            logs = "\n".join(path.read_text()[-2000:] for path in (*folder.glob("*.log"), *folder.glob("*.out")))
            pytest.fail(f"Slurm did not start: {logs}")
        time.sleep(0.2)
    ticking.start()
    return running


def _tick(running: Slurm, over: threading.Event) -> None:
    """Change something every two seconds: the backfill scheduler, which alone starts jobs of several parts, looks at
    the queue only when something changed since its last look, and misses a change within the same second."""
    count = 0
    while not over.wait(2.0):
        count += 1
        running.run("scontrol", "update", "NodeName=n1", f"Comment=tick{count}")


def _munge(folder: Path, stack: contextlib.ExitStack) -> Path:
    """Start munge on a socket of ours; as root it wants its files to be root's, in folders nobody else can write."""
    place = Path("/run/gavel-test-munge-" + str(os.getpid()))
    place.mkdir(mode=0o755)
    stack.callback(shutil.rmtree, place, ignore_errors=True)
    key = place / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    path = place / "socket"
    command = (
        "munged",
        "--foreground",
        "--force",
        f"--socket={path}",
        f"--key-file={key}",
        f"--pid-file={place}/pid",
        f"--seed-file={place}/seed",
        f"--log-file={place}/log",
    )
    _daemon(command, folder / "munged.out", {"PATH": f"{os.environ['PATH']}:/usr/sbin"}, stack)
    limit = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < limit, (folder / "munged.out").read_text()
        time.sleep(0.05)
    return path


def _daemon(command: tuple[str, ...], log: Path, environment: Mapping[str, str], stack: contextlib.ExitStack) -> None:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=_die_with_us,
        )
    stack.callback(_end, process)


def _die_with_us() -> None:
    """Have the kernel end a daemon when the tests are killed (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
