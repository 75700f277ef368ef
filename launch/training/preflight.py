"""Everything that can be found wrong with a training run on the machine that submits it, all at once, before a GPU is
taken.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gavel.judges.certificate import require_certificate
from gavel.launch.assembly.assemble import Assembly, assemble_run, split_environments
from gavel.launch.config.schema import TrainConfig
from gavel.launch.training import layout as layouts
from gavel.launch.training.container import list_container_findings
from gavel.launch.training.layout import Layout, compute_layout, list_managed
from gavel.launch.training.tasks import has_judged_task, list_task_findings
from gavel.launch.training.trainer import ComposedTraining, Trainer
from gavel.launch.training.trainers import TRAINERS, find_trainer
from gavel.models.calls.transport import list_unset_variables
from gavel.models.errors import ConfigError, GavelError, InputError, drop_repeated
from gavel.models.service import Service, get_config_key
from gavel.models.vllm.arguments import check_engine_args
from gavel.models.vllm.ports import pick_port


@dataclass(frozen=True, slots=True)
class Checked:
    """A run that was looked at: ``config_name`` and ``config_text`` are empty where the trainer's config could not be
    made; ``unqualified`` says which judges start without a certificate that qualifies them, ``baselines`` by binding
    what its certificate has for each control, ``judged`` whether any task can ask a judge."""

    assembly: Assembly | None
    layout: Layout | None
    config_name: str
    config_text: str
    findings: tuple[GavelError, ...]
    unqualified: tuple[str, ...] = ()
    baselines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    judged: bool = True


def check_run(config: TrainConfig, run: Path) -> Checked:
    """Look at a run from all sides; nothing is written but a file that is removed again, to see whether folders can
    be.
    """
    trainer = find_trainer(config.trainer.kind)
    found: list[GavelError] = []
    assembly = None
    try:
        assembly = assemble_run(_drop_credentials(config), with_policy=False)
    except GavelError as failed:
        found.append(failed)
    parts = _assemble_parts(config, assembly)
    for part_name, (part, made) in parts.items():
        found += list_task_findings(part, made, f"envs.{part_name}." if part_name else "")
    tasks_known = any(_read_field(one).endswith(("tasks.path", "validation.path")) for one in found)
    found += _check_trainer(config, trainer)
    services = {} if assembly is None else {name: config.service_table[name] for name in assembly.services}
    found += (*_check_places(config, run), *list_container_findings(config, services, run))
    layout, name, text = None, "", ""
    certified, judged = _Certified(), True
    if assembly is not None:
        found += (failed for _, made in parts.values() if made for failed in _check_turns(made))
        judged = any(made is None or has_judged_task(part, made) for part, made in parts.values())
        if judged and any(service.is_none for service in assembly.services.values()):
            found.append(
                ConfigError(
                    "these tasks ask a judge, and none is chosen", field="judge", found="none", remedy="judge=…"
                )
            )
        layout = compute_layout(config, assembly.services)
        found += layouts.list_findings(config, layout, assembly.services)
        found += _check_services(config, services, layout)
        certified = _check_certificates(config, assembly) if judged else certified
        found += certified.findings
        name, text, more = _make_config(trainer, ComposedTraining(config, assembly, layout, run))
        found += list_new_findings(found, more, tasks_known=tasks_known)
    return Checked(
        assembly, layout, name, text, tuple(drop_repeated(found)), certified.waived, certified.baselines, judged
    )


def list_new_findings(
    known: Sequence[GavelError], rendered: Iterable[GavelError], *, tasks_known: bool
) -> list[GavelError]:
    """Return what is wrong with a rendered config and was not found before it was rendered: it is said in the words of
    the trainer, where the user knows his own. ``tasks_known``: something is known to be wrong with the task files.
    """
    said = {_make_key(one) for one in known}
    return [
        one
        for one in rendered
        if not (tasks_known and (_read_place(one) or _read_field(one)).startswith("data."))
        and _make_key(one) not in said
    ]


def _make_key(failed: GavelError) -> object:
    """Return what an error says, wherever it was met."""
    return (failed.problem, failed.field, failed.found) if isinstance(failed, InputError) else str(failed)


def _read_field(failed: GavelError) -> str:
    return failed.field if isinstance(failed, InputError) else ""


def _read_place(failed: GavelError) -> str:
    return failed.where if isinstance(failed, InputError) else ""


def _assemble_parts(config: TrainConfig, assembly: Assembly | None) -> dict[str, tuple[TrainConfig, Assembly | None]]:
    """Return each environment of a training with its own parts, None where they could not be assembled."""
    parts = split_environments(_drop_credentials(config))
    if "" in parts:
        return {"": (config, assembly)}
    return {
        name: (part, assemble_run(part, with_policy=False) if assembly is not None else None)
        for name, part in parts.items()
    }


def _check_turns(assembly: Assembly) -> Iterator[GavelError]:
    """A trainer must know how many replies to play: an episode that it cuts is never graded, so only early successes
    would train.
    """
    if assembly.environment.info.policy_turns is None:
        yield ConfigError(
            "this environment does not say how many replies an episode takes",
            field="env.name",
            found=assembly.environment.name,
            allowed="an `info` with policy_turns, at least 1",
            remedy="give its class `info = EnvironmentInfo(policy_turns=N)`, N the most replies of the policy in "
            "one episode",
        )


def _drop_credentials(config: TrainConfig) -> TrainConfig:
    """Return the config as if no service needed a key: an unset variable is one finding, and must not hide the
    others.
    """
    services = {name: replace(service, api_key_env=None, header_env=None) for name, service in config.services.items()}
    return replace(config, services=services, judge=replace(config.judge, api_key_env=None, header_env=None))


def _make_config(trainer: Trainer, training: ComposedTraining) -> tuple[str, str, Iterable[GavelError]]:
    config = training.config
    if not all(part.tasks.path for part in split_environments(config).values()) or not trainer.is_renderable(config):
        return "", "", ()  # found already
    try:
        name, text = trainer.render(training)
    except GavelError as failed:
        return "", "", (failed,)
    return name, text, trainer.check_config(training, text)


@dataclass(frozen=True, slots=True)
class _Certified:
    """What the certificates say: what keeps the judges from training, what is waived, and the labels of their
    controls.
    """

    findings: tuple[GavelError, ...] = ()
    waived: tuple[str, ...] = ()
    baselines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _check_certificates(config: TrainConfig, assembly: Assembly) -> _Certified:
    folder, missing, waived, labels = Path(config.certificates).expanduser(), list[GavelError](), [], {}
    for name, binding in assembly.bindings.items():
        try:
            found = require_certificate(folder, binding, config.qualification)
        except GavelError as failed:
            missing.append(failed)
            continue
        if not config.qualification.required:
            waived.append(f"{name}: qualification.required=false" + ("" if found else ", never probed"))
        if found is not None and found.probe is not None:
            labels[name] = {row.name: row.got for row in found.probe.rows if row.kind == "control" and row.graded}
    return _Certified(tuple(missing), tuple(waived), labels)


def _check_services(config: TrainConfig, services: Mapping[str, Service], layout: Layout) -> Iterator[GavelError]:
    for name, service in services.items():
        key = get_config_key(name)
        for variable in list_unset_variables(service):
            yield ConfigError("this variable is not set", field=key, found=variable, remedy=f"export {variable}=…")
        if service.mode != "managed":
            continue
        try:
            check_engine_args(key, service)
            if service.port and layout.mode == "same_node" and config.cluster.kind == "local":
                pick_port(key, service.port)
        except ConfigError as failed:
            yield failed
    if not list_managed(services) and config.cluster.nodes > 1:
        yield from _check_local_addresses(services, config.cluster.nodes)


def _check_local_addresses(services: Mapping[str, Service], nodes: int) -> Iterator[GavelError]:
    for name, service in services.items():
        for url in service.base_urls:
            if any(f"//{host}" in url for host in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")):
                yield ConfigError(
                    f"the environment may run on any of {nodes} nodes, and this address means each of them itself",
                    field=f"{get_config_key(name)}.base_url",
                    found=url,
                    remedy="name the judge's host",
                )


def _check_places(config: TrainConfig, run: Path) -> Iterator[GavelError]:
    places = [("run.dir", run)]
    if config.placement.folder:
        places.append(("placement.folder", Path(config.placement.folder).expanduser()))
    for key, place in places:
        above = next((folder for folder in (place, *place.absolute().parents) if folder.exists()), Path("/"))
        try:
            with tempfile.NamedTemporaryFile(dir=above, prefix=".gavel-"):
                pass
        except OSError as failed:
            yield ConfigError(
                "nothing can be written here", field=key, found=f"{above}: {failed.strerror}", remedy=f"set {key}=…"
            )
    if config.cluster.kind == "slurm" and shutil.which("sbatch") is None:
        yield ConfigError(
            "there is no Slurm here",
            field="cluster",
            found="no sbatch",
            remedy="submit from a login node, or cluster=local",
        )


def _check_trainer(config: TrainConfig, trainer: Trainer) -> Iterator[GavelError]:
    if config.envs and not trainer.several:
        yield ConfigError(
            "this trainer trains in one environment",
            field="trainer.kind",
            found=f"{config.trainer.kind}, and {len(config.envs)} environments",
            allowed=", ".join(kind for kind, one in TRAINERS.items() if one.several),
        )
    yield from trainer.check(config)
