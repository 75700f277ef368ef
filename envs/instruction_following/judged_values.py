"""Values of the judged instructions' arguments, with our definitions: what a judge is told each of them means."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _make_table(**values: str) -> Mapping[str, str]:
    return MappingProxyType(values)


TONE_LEVEL = _make_table(
    formal="wording fit for academic or professional use, without slang or contractions",
    informal="relaxed, everyday wording, as among friends",
    neutral="plain facts, without a stance",
)
EMOTIONAL_TONE = _make_table(
    positive="warm and encouraging",
    negative="critical or gloomy; dwells on what is wrong",
    neutral="no feeling shown",
    motivational="urges the reader on and gives confidence",
    empathetic="recognises the reader's feelings and shows understanding for them",
    sarcastic="says the opposite of what is meant, often to mock",
    humorous="wants to make the reader laugh",
)
POLITENESS = _make_table(
    polite="uses courteous forms, such as please and thank you",
    impolite="curt, ordering or rude",
    neutral="neither courteous nor rude",
)
DESCRIPTION = _make_table(
    concise="only what is needed", moderate="some detail, without digression", elaborate="rich, extended detail"
)
STYLE = _make_table(
    poetic="rhythm and imagery lead",
    narrative="recounts events",
    dramatic="builds tension between opposed forces",
    persuasive="argues for one position",
    expository="explains step by step",
    journalistic="brief and report-like",
)
SENTENCE_TONE = _make_table(
    formal="a professional register throughout",
    informal="a casual register throughout",
    neutral="unbiased and unemotional throughout",
    positive="supportive throughout",
    negative="critical throughout",
)
VOICE = _make_table(
    active="the subject does the action",
    passive="the subject undergoes the action",
    mixed="both active and passive, in balance",
)
FIGURE = _make_table(
    simile="likens two different things with a comparison word",
    metaphor="states that one thing is another",
    personification="gives human traits to things or ideas",
    hyperbole="overstates on purpose",
    idiom="a set phrase whose meaning is not literal",
)
TRANSITION_TONE = _make_table(
    formal=SENTENCE_TONE["formal"].removesuffix(" throughout"),
    informal=SENTENCE_TONE["informal"].removesuffix(" throughout"),
    **{
        tone: EMOTIONAL_TONE[tone]
        for tone in ("positive", "negative", "neutral", "humorous", "sarcastic", "motivational", "empathetic")
    },
)
TRANSITION_POSITION = _make_table(
    beginning="the tone changes in the first third of the text",
    middle="the tone changes in the second third of the text",
    end="the tone changes in the last third of the text",
)
SENSE = _make_table(
    visual="what is seen: colour, light, shape, movement",
    auditory="what is heard",
    tactile="what is felt by touch",
    olfactory="what is smelled",
    gustatory="what is tasted",
)
RHYTHM = _make_table(
    short="brief sentences at a quick pace",
    balanced="long and short sentences alternate",
    long="extended sentences at a slow pace",
)
CONTEXT = _make_table(
    formal_discourse="a scholarly register",
    dialogue="an exchange between two speakers",
    dialect="regional words and grammar",
    sociolect="speech marked by a social or work group",
    classical="an old, elevated literary register",
    policy_style="official wording on rules and compliance",
)
ACT = _make_table(
    declarative="states something",
    interrogative="asks something",
    imperative="commands or requests",
    exclamatory="expresses strong feeling",
    conditional="ties a result to a condition",
    suggestive="proposes or recommends",
)
PATTERN = _make_table(
    compound_sentence="main clauses joined with one another",
    complex_sentence="a main clause with a dependent one",
    subordinate_clause="contains a dependent clause",
    passive_construction="the undergoer of the action is the subject",
    parallel_structure="like ideas in like grammatical form",
)
MOOD = _make_table(
    indicative="facts and beliefs",
    subjunctive="wishes, hypotheses, demands",
    imperative="orders and bans",
    interrogative="questions",
)
FORM = _make_table(
    inflectional="endings for tense, number, case and the like",
    derivational="affixes that make new words",
    compound="words made of several stems",
    reduplicated="the whole or a part of the stem is repeated",
)
PHONOLOGY = _make_table(
    alliteration="the same initial consonant in words near one another",
    rhyme="the same sounds at the ends",
    rhythm="a regular pattern of stress",
    assonance="repeated vowels",
    consonance="repeated consonants",
)
ROLE = MappingProxyType(
    {
        role: f"speaks with the knowledge and in the manner of {article} {role}"
        for article, role in (
            ("a", "teacher"), ("a", "doctor"), ("a", "lawyer"), ("an", "engineer"), ("a", "journalist"), ("a", "scientist"),  # noqa: E501
            ("a", "historian"), ("a", "politician"), ("a", "philosopher"), ("an", "artist"), ("a", "coach"), ("a", "manager"),  # noqa: E501
            ("a", "student"), ("a", "counselor"), ("an", "advisor"),
        )
    }
)  # fmt: skip
TASK = _make_table(
    consultation="asks for the needs, then advises",
    recommendation="ranks options and says why",
    instruction="ordered steps, with warnings where they matter",
    analysis="breaks the evidence down to findings",
    diagnosis="traces symptoms to a cause and a remedy",
    debate="sets opposing arguments against each other",
    summary="the main points only",
    explanation="makes the how and why clear",
    critique="weighs strengths and faults",
    comparison="sets items side by side on stated criteria",
)
AUDIENCE = _make_table(
    children="simple words and concrete examples",
    students="teaches with steps and checks",
    experts="precise terms, no basics",
    general_public="plain words and everyday references",
    policymakers="options, their effects, and a recommendation",
    professionals="oriented to practice in the trade",
    elderly="clear, respectful and unhurried",
    beginners="assumes nothing and defines its terms",
)
SCENARIO = _make_table(
    business_meeting="agenda, decisions, and who does what",
    academic_lecture="a teacher explains with evidence",
    courtroom="argument, testimony, procedure",
    therapy_session="reflective and supportive talk",
    news_report="who, what, when, where and why",
    press_conference="a statement, and answers to questions",
    classroom="teaching with questions to and from the class",
    emergency_briefing="urgent facts and orders",
)
PERSPECTIVE = _make_table(
    first_person="the narrator is I or we",
    second_person="addresses you",
    third_person="about he, she or they",
    mixed="changes among these",
)
ALIGNMENT = _make_table(
    sympathetic="shows care for the other",
    neutral="even and detached",
    optimistic="expects a good outcome",
    serious="grave, without jokes",
    cautious="careful claims; names risks",
    motivational="pushes to act",
    respectful="honours the other's dignity",
)
CULTURE = _make_table(
    western="European and North American norms",
    eastern="norms of Asia",
    **{"global": "free of local references"},  # a word of Python
    local="tied to one community",
    specific_region="tied to a named region",
)
ADAPTATION = _make_table(
    implicit="fitted to the culture without saying so", explicit="names and explains the adaptation"
)
TIME = _make_table(
    past="completed events",
    present="what happens now",
    future="what is yet to come",
    mixed="moves among past, present and future",
)
SETTING = _make_table(
    urban="city life",
    rural="the countryside",
    digital="online",
    natural="landscape and weather",
    professional="the workplace",
    academic="study and research",
    cultural="arts and heritage",
)
