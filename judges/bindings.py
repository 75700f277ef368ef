"""Bindings: under one name, the service that judges and the rubric it judges with; everything is checked before a GPU
is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gavel.judges.assets import AssetStore
from gavel.judges.form_types import RubricForm
from gavel.judges.panel_rules import make_panel_rule
from gavel.judges.panels import PanelRule
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.rubrics.table import PROFILES, Profile, make_rubric
from gavel.judges.types import BindingConfig, Rubric, RubricConfig, is_target_taken
from gavel.models.codec import compute_digest
from gavel.models.errors import ConfigError, find_nearest
from gavel.models.service import Service, get_config_key

CHARACTERS_PER_TOKEN = 6
"""No tokenizer packs English more tightly than this on a whole prompt, so lengths over it are a lower bound in
tokens.
"""

THINKING_TOKENS = 4096
"""What most judges that think need before their verdict."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A bound judge: ``service`` is the name it is called by, ``judge`` how it is configured (None in tests that need
    no identity). One of several judges has ``members``, one for each service, and the ``rule`` by which their verdicts
    become one; it asks no service itself.
    """

    name: str
    service: str
    rubric: Rubric
    judge: Service | None = None
    rubric_name: str = ""  # in the config; as a rule the binding's own
    members: tuple[Binding, ...] = ()
    rule: PanelRule | None = None

    @property
    def judges(self) -> tuple[Binding, ...]:
        """The bindings that each ask one service: the members of a panel, else this one."""
        return self.members or (self,)

    @property
    def model(self) -> str:
        """The judge in words: its model, or a panel with the models of its members."""
        if self.rule is None:
            return (self.judge.model if self.judge else None) or ""
        return self.rule.describe()

    @property
    def limit_key(self) -> str:
        """The key of the config that bounds what the rubric asks for."""
        return f"rubrics.{self.rubric_name or self.name}.max_response_tokens"

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of the judge's identity and the rubric: equal bindings judge alike, whatever their names; of
        a panel of its rule and its members.
        """
        if self.rule is not None:
            rule = replace(self.rule, members=())
            return compute_digest([rule, [member.digest for member in self.members]])
        return compute_digest([self.judge.identity if self.judge else None, self.rubric.digest])


def bind_rubrics(
    rubrics: Mapping[str, RubricConfig],
    bindings: Mapping[str, BindingConfig],
    services: Mapping[str, Service],
    assets: AssetStore,
    *,
    declared: Collection[str] = (),
    added: Mapping[str, Profile] = PROFILES,
) -> Mapping[str, Binding]:
    """Join rubrics and services under the bindings' names.

    Args:
        rubrics: the configured rubrics by name.
        bindings: the configured bindings by name.
        services: every service by name.
        assets: where the rubrics' texts come from.
        declared: names of services that must be used by a binding (those under ``services`` that no environment calls
            itself).
        added: rubric profiles besides ours.

    Raises:
        ConfigError: an unknown service, rubric or profile; an unused rubric or declared service; output that cannot
            fit.
        AssetError: a rubric's text cannot be had, or it is not the pinned one.
    """
    for name, binding in bindings.items():
        for judge in binding.judges:
            _check_known(judge, services, f"judging.bindings.{name}.judge", "service")
        _check_known(binding.rubric, rubrics, f"judging.bindings.{name}.rubric", "rubric")
    _check_all_used(rubrics, {binding.rubric for binding in bindings.values()}, "rubrics", "rubric")
    judging = {judge for binding in bindings.values() for judge in binding.judges}
    _check_all_used(declared, judging, "services", "service")
    made = {
        name: make_rubric(config, assets, field=f"rubrics.{name}.profile", added=added)
        for name, config in rubrics.items()
    }
    _check_named_apart(made)
    bound = {name: _bind(name, item, made[item.rubric], services) for name, item in bindings.items()}
    for joined in bound.values():
        for one in joined.judges:
            _check_fit(one, services[one.service])
    return bound


def _check_named_apart(rubrics: Mapping[str, Rubric]) -> None:
    """Refuse two rubrics of files that call themselves alike: a report could not say which graded."""
    seen: dict[str, tuple[str, RubricForm]] = {}
    for name, rubric in rubrics.items():
        if not isinstance(rubric, PromptRubric) or rubric.form is None:
            continue
        other, form = seen.setdefault(rubric.profile, (name, rubric.form))
        if replace(form, path="") != replace(rubric.form, path=""):
            raise ConfigError(
                "two rubrics have one name",
                field=f"rubrics.{name}.file",
                found=f"{rubric.profile}, as rubrics.{other}.file",
                remedy="give one another name or version",
            )


def _bind(name: str, item: BindingConfig, rubric: Rubric, services: Mapping[str, Service]) -> Binding:
    rule = make_panel_rule(item, rubric, services, f"judging.bindings.{name}")
    if rule is None:
        return Binding(name, item.judges[0], rubric, services[item.judges[0]], item.rubric)
    members = tuple(
        Binding(make_member_name(name, judge), judge, rubric, services[judge], item.rubric) for judge in rule.members
    )
    return Binding(name, "", rubric, None, item.rubric, members, rule)


def make_member_name(binding: str, service: str) -> str:
    """Return what the binding of one member of a panel is called: ``helpful[second]``."""
    return f"{binding}[{service}]"


def add_members(bindings: Mapping[str, Binding]) -> dict[str, Binding]:
    """Return the bindings by name, and beside each panel its members."""
    return {one.name: one for binding in bindings.values() for one in (binding, *binding.members)}


def _check_known(name: str, choices: Iterable[str], field: str, what: str) -> None:
    if name not in (names := list(choices)):
        raise ConfigError(
            f"there is no such {what}",
            field=field,
            found=name,
            allowed=", ".join(names) or "(none is declared)",
            remedy=_advise_name(name, names, field, what),
        )


def _advise_name(name: str, names: Sequence[str], field: str, what: str) -> str:
    if what == "service" and "," in name:
        return f"several judges are a list: {field}=[{name}]"
    if what == "service" and name == "judge":
        return "in this table the config's `judge` is called `general`"
    near = find_nearest(name, names)
    return f"did you mean `{near[0]}`?" if near else f"declare the {what} or name one of these"


def _check_all_used(names: Iterable[str], used: set[str], group: str, what: str) -> None:
    for name in names:
        if name not in used:
            raise ConfigError(
                f"no binding uses this {what}",
                field=f"{group}.{name}",
                found=f"bindings use: {', '.join(sorted(used)) or 'none'}",
                remedy=f"bind it under judging.bindings, or remove it: ~{group}.{name}",
            )


def describe_judges(binding: Binding) -> str:
    """Return the keys of the services that judge: ``judge``, or ``panel of judge, services.second (…)``."""
    if binding.rule is None:
        return get_config_key(binding.service)
    return replace(binding.rule, members=tuple(map(get_config_key, binding.rule.members))).describe()


def describe_output_limit(binding: Binding) -> str:
    """Say how many tokens a judge may answer with, and which key to raise where that leaves no room for thinking."""
    if binding.members:
        return "; ".join(f"{get_config_key(one.service)}: {describe_output_limit(one)}" for one in binding.members)
    answer = binding.rubric.sampling.max_response_tokens
    if answer is None:
        return "no output limit"
    room = binding.judge.thinking_tokens if binding.judge is not None else 0
    key = f"{get_config_key(binding.service)}.thinking_tokens"
    if room:
        return f"at most {answer + room} tokens a reply, {room} of them for thinking"
    needed = f"{key}={THINKING_TOKENS}, {answer + THINKING_TOKENS} in all"
    return f"at most {answer} tokens a reply, none for thinking; a judge that thinks needs more ({needed})"


def advise_limit(binding: Binding) -> str:
    """Say which keys give a judge more room whose reply ended at a limit."""
    answer, room = (
        binding.rubric.sampling.max_response_tokens,
        binding.judge.thinking_tokens if binding.judge is not None else 0,
    )
    if answer is None:
        return (
            f"no output limit was sent, so the server's own one or its context ended it; {binding.limit_key} sends one"
        )
    key = f"{get_config_key(binding.service)}.thinking_tokens"
    more = f"{key} (a judge that thinks needs {max(THINKING_TOKENS, 2 * room)} or more; {room or 'none'} now)"
    return f"raise {more} or {binding.limit_key} ({answer} now)"


def _check_fit(binding: Binding, service: Service) -> None:
    limit, answer = service.max_context_length, binding.rubric.sampling.max_response_tokens
    if limit is None or answer is None:
        return
    answer += service.thinking_tokens
    empty = binding.rubric.render(dict.fromkeys(binding.rubric.slots, ""))
    prompt = sum(len(message.content) for message in empty) // CHARACTERS_PER_TOKEN
    if prompt + answer > limit:
        raise ConfigError(
            f"the rubric's reply does not fit the context of {get_config_key(binding.service)}",
            field=binding.limit_key,
            found=str(answer),
            allowed=f"{limit} tokens of context, less at least {prompt} for the rubric's own text",
            remedy="lower max_response_tokens, or raise the service's max_context_length",
        )


def parse_verifier(name: str) -> tuple[str, str]:
    """Split a task's verifier, ``<target format>/<binding>``.

    Raises:
        ConfigError: it has another form.
    """
    target, slash, binding = name.partition("/")
    if not (target and slash and binding):
        raise ConfigError(
            "this is not a verifier's name",
            field="verifier",
            found=name,
            allowed="<target format>/<binding>",
            remedy="for example nemo_abstention_v1/abstention",
        )
    return target, binding


def check_verifiers(bindings: Mapping[str, Binding], verifiers: Iterable[str], also: Collection[str] = ()) -> None:
    """Check that tasks and bindings agree.

    Args:
        bindings: the bindings by name.
        verifiers: the verifier names that the tasks carry; repeats do not matter.
        also: bindings that grade every task besides.

    Raises:
        ConfigError: a task names a missing binding, a binding's rubric does not take the task's target, or no task uses
            a binding.
    """
    used: set[str] = set(also)
    for verifier in dict.fromkeys(verifiers):
        target, name = parse_verifier(verifier)
        _check_known(name, bindings, f"verifier {verifier}", "binding")
        rubric = bindings[name].rubric
        if not is_target_taken(rubric, target):
            raise ConfigError(
                f"the rubric of binding {name} does not take this target format",
                field=f"verifier {verifier}",
                found=target,
                allowed=", ".join(rubric.targets),
                remedy=f"bind {name} to a rubric for {target}; its profile is now {rubric.profile}",
            )
        used.add(name)
    for name in bindings:
        if name not in used:
            raise ConfigError(
                "no task uses this binding",
                field=f"judging.bindings.{name}",
                found=f"tasks use: {', '.join(sorted(used)) or 'none'}",
                remedy=f"remove it (~judging.bindings.{name}), or prepare the tasks for it",
            )
