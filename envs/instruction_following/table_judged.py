"""The instructions that a judge decides, with our own definitions."""

from __future__ import annotations

from collections.abc import Mapping

from gavel.envs.instruction_following import judged_values as values
from gavel.envs.instruction_following.arguments import COUNT, RELATION, Argument, make_defined
from gavel.envs.instruction_following.instruction import Instruction, Mode


def _make_judged(name: str, definition: str, *arguments: Argument, mode: Mode = "fits") -> Instruction:
    return Instruction(name, "judged", arguments, definition, mode=mode)


def _make_fits(
    name: str, argument: str, listed: Mapping[str, str], definition: str, *, any_value: bool = False
) -> Instruction:
    return _make_judged(name, definition, make_defined(argument, listed, open=any_value))


def _make_counts(name: str, number: str, definition: str, *before: Argument) -> Instruction:
    return _make_judged(
        name, definition, *before, Argument("relation", RELATION), Argument(number, COUNT), mode="counts"
    )


JUDGED: tuple[Instruction, ...] = (
    _make_fits("stylistic:tone_formality", "tone_level", values.TONE_LEVEL, "The text as a whole has the given "
                                                                            "level of formality."),
    _make_fits("stylistic:emotional_tone", "emotion_type", values.EMOTIONAL_TONE, "The text as a whole has "
                                                                                  "the given emotional tone."),
    _make_fits("stylistic:politeness", "politeness_degree", values.POLITENESS, "The text treats its reader with the "
                                                                               "given politeness."),
    _make_fits("stylistic:descriptive_level", "description_degree", values.DESCRIPTION, "The text describes in "
                                                                                        "the given amount of detail."),
    _make_fits("stylistic:literary_style", "style_type", values.STYLE, "The text is written in the given style."),
    _make_fits(
        "stylistic:sentence_tone_consistency", "tone_type", values.SENTENCE_TONE,
        "Every sentence has the given tone; a mix of tones is a violation.",
    ),
    _make_fits("stylistic:voice", "voice_type", values.VOICE, "The verbs of the text are in the given "
                                                              "grammatical voice."),
    _make_counts(
        "stylistic:figurative_language", "num_occurrences", "The number of figures of speech of the given type fits "
                                                            "the relation.",
        make_defined("figure_type", values.FIGURE),
    ),
    _make_judged(
        "stylistic:tone_transition", "The tone of the text changes from the one to the other, at the given place.",
        make_defined("from_tone", values.TRANSITION_TONE), make_defined("to_tone", values.TRANSITION_TONE),
        make_defined("transition_position", values.TRANSITION_POSITION),
    ),
    _make_counts(
        "stylistic:emotive_adjectives", "num_adjectives",
        "The number of adjectives that express or arouse a feeling fits the relation; each occurrence counts.",
    ),
    _make_counts(
        "stylistic:sensory_detail", "num_details", "The number of details that appeal to the given sense fits the "
                                                   "relation.",
        make_defined("sense_type", values.SENSE),
    ),
    _make_fits("stylistic:rhythm_pattern", "rhythm_type", values.RHYTHM, "The sentences of the text have the "
                                                                         "given rhythm."),
    _make_fits("linguistic:pragmatic_context", "context_type", values.CONTEXT, "The language of the text fits the "
                                                                               "given context of use."),
    _make_fits("linguistic:speech_act", "act_type", values.ACT, "The text mainly performs the given act of speech."),
    _make_fits("linguistic:syntactic_pattern", "pattern_type", values.PATTERN, "The sentences of the text are built "
                                                                               "to the given pattern."),
    _make_fits("linguistic:grammatical_mood", "mood_type", values.MOOD, "The verbs of the text are mainly in the "
                                                                        "given mood."),
    _make_fits("linguistic:morphological_form", "form_type", values.FORM, "The text makes clear use of words of the "
                                                                          "given form."),
    _make_fits("linguistic:phonological_pattern", "phonology_type", values.PHONOLOGY, "The text clearly uses "
                                                                                      "the given pattern of sounds."),
    _make_counts(
        "linguistic:sound_symbolism", "num_symbolisms",
        "The number of words whose sound imitates or suggests what they mean, such as buzz, fits the relation.",
    ),
    _make_fits("situation:role_based", "role_type", values.ROLE, "The text speaks consistently in the "
                                                                 "given role.", any_value=True),
    _make_fits("situation:task_specific", "task_type", values.TASK, "The text does the given kind "
                                                                    "of work.", any_value=True),
    _make_fits("situation:audience_alignment", "audience_type", values.AUDIENCE, "The text suits "
                                                                                 "the given readers.", any_value=True),
    _make_fits("situation:contextual_scenario", "scenario_type", values.SCENARIO, "The text fits "
                                                                                  "the given scene.", any_value=True),
    _make_fits("situation:perspective", "perspective_type", values.PERSPECTIVE, "The text is told in the "
                                                                                "given grammatical person."),
    _make_fits(
        "situation:emotional_alignment", "emotion_type", values.ALIGNMENT,
        "The text takes the given attitude to its subject and reader.", any_value=True,
    ),
    _make_judged(
        "situation:cultural_context", "The text is fitted to the given culture, in the given way.",
        make_defined("culture_type", values.CULTURE), make_defined("adaptation_level", values.ADAPTATION),
    ),
    _make_fits("situation:temporal_context", "time_frame", values.TIME, "The text is set in the given time."),
    _make_fits("situation:environment_setting", "environment_type", values.SETTING, "The text is set "
                                                                                    "in such surroundings.", any_value=True),  # noqa: E501
)  # fmt: skip
