"""Where the sentence library needs help, language by language: data only.

``NEVER``: with a full stop these never end a sentence, whatever follows; compared as they are written. ``BEFORE_SMALL``: these do not
end one before a small letter, a digit or a Roman numeral; compared in any case. ``TELLS``: what is said of somebody who has just been
quoted, so that quotation and words around it are one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _sets(words: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({code: frozenset(listed.split()) for code, listed in words.items()})


NEVER: Mapping[str, frozenset[str]] = _sets(
    {
        "en": "Mr Mrs Ms Messrs Dr Prof Rev Hon Gov Sen Rep Gen Col Capt Lt Sgt Ft Mt incl Incl vs Vs viz cf Cf e.g i.e E.g I.e",
        "es": "D Dña Sr Sra Srta Sres Dr Dra Lic Ing Prof Profa Ud Uds Vd Vds Excmo Excma Ilmo Ilma Gral Cnel Avda Sto Sta Cf",
        "fre": "M MM Mme Mmes Mlle Mlles Dr Drs Pr Me Mgr St Ste cf Cf",
        "de": "Hrn Hr Fr Dr Prof Dipl Ing Dipl.-Ing Dipl.-Kfm Mag St inkl Inkl exkl Exkl zzgl Zzgl abzgl Abzgl einschl Einschl "
        "geb gest max min ca Ca bzw evtl Evtl ggf Ggf vgl Vgl sog Nr Abb Abs Hrsg insb insbes Insb z.B Z.B d.h D.h i.d.R u.a "
        "allg dt engl frz lat kath ev verh wiss ehem Ehem",
        "it": "Sig Sigg Dott Prof Ing Avv Arch Geom Rag On Mons S SS P.zza Dott.ssa Prof.ssa Sig.ra Sig.na Cfr cfr",
        "pt-BR": "Sr Sra Srs Sras Srta Dr Dra Prof Profa Exmo Exma Ilmo Ilma Av R Eng Gen Cel Sto Sta Exa Sa Cf cf",
        "hi": "डॉ श्री श्रीमती प्रो कु सु पं मि रु पृ सं ई.पू कि.मी मि.मी से.मी कि.ग्रा मि.ली वि.सं",
        "ar": "د أ م ق.م هـ ه ص ج أ.د ت",
    }
)

_LATIN = "p pp vol no ed min max"

BEFORE_SMALL: Mapping[str, frozenset[str]] = _sets(
    {
        "en": f"{_LATIN} approx est mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug sep sept oct nov dec lb lbs oz "
        "hr hrs sec secs mins incl excl eq eqs ch chap ft yd mi pt pts pl fig figs sect par ref refs art esp resp dept inc ltd co corp "
        "bros ave blvd rd st jr sr tel ext var ca cf vs misc temp orig trans eds nos a.m p.m a.d b.c b.c.e ph.d",
        "es": f"{_LATIN} aprox a.c d.c a.m p.m cía cia pág págs cap caps art arts fig figs tel tfno núm núms ej av avda c/ dpto depto "
        "edo gral izq dcha máx mín seg ene feb abr jun jul ago sept oct nov dic lun mar mié jue vie sáb dom ref vid v.gr p.ej s.a s.l "
        "ee.uu ltda hnos",
        "fre": f"{_LATIN} ex bd c.-à-d av apr j.-c env chap art fig tél janv févr avr juil sept oct nov déc lun mar mer jeu ven sam dim "
        "réf sec hab éd coll trad t cie ste boul p.ex c.à.d s.a",
        "de": f"{_LATIN} bd inkl exkl geb gest tel art kap fig tab str jh jhd mio mrd std sek jan feb apr jun jul aug sept okt nov dez mo di mi do "
        "fr sa so abb abs nr ca bzw evtl ggf vgl usw etc bspw aufl verf bes gem ungef pos gmbh co kg v.chr n.chr u.a u.ä o.ä",
        "it": f"{_LATIN} pag pagg n nn a.c d.c s.p.a s.r.l cap capp art artt fig figg tel ca circa es ecc gen feb mar apr mag giu lug ago set sett "
        "ott nov dic lun mer gio ven sab dom ass rif vol voll sec prof p.es c.a a.m p.m min max prov",
        "pt-BR": f"{_LATIN} ltda ex pág págs cap caps núm nº tel séc a.c d.c cia cía aprox n etc máx mín jan fev mar abr mai jun jul ago set out nov "
        "dez seg ter qua qui sex sáb dom art arts fig figs ref obs av al apto ap dept depto exa p.ex a.m p.m s.a",
        "hi": "p no",
        "ar": "ص ج هـ",
    }
)  # fmt: skip

TELLS: Mapping[str, str] = MappingProxyType(
    {
        "en": r"\p{Lu}\w+(?: \p{Lu}\w+)? (?:said|asked|replied|answered|cried|shouted|whispered|called|yelled|added|exclaimed|muttered)\b",
        "zh": r"[^。！？，,]{0,12}(?:[说說问問喊叫嚷吼]|[回应應]?答|道(?![路理歉德])|嘀咕|低语|低語|解释|解釋|补充|補充|感叹|感嘆|宣布)",
        "ja": r"(?:と|って|など)|[^。！？、]{0,12}(?:言[いうわっ]|叫[びんぶ]|答え|尋ね|聞い|話し|つぶや|ささや)",
        "ko": r"[^.!?,]{0,20}(?:말했|말하|말한|외쳤|외치|물었|묻|물어|대답|답했|소리|속삭|중얼|덧붙|설명|전했|밝혔|강조|(?<!\w)했다|(?<!\w)한다)",
        "hi": r"[^.!?।,]{0,24}(?:कह|बोल|पूछ|चिल्ला|पुकार|बताय|जवाब|उत्तर दिया|फुसफुसा)",
        "ar": r"\W*(?:و|ف)?(?:قال|قالت|قالوا|صاح|صاحت|صرخ|صرخت|سأل|سألت|أجاب|أجابت|هتف|هتفت|همس|همست|رد|ردت|ردّ|ردّت|نادى|نادت|أضاف|أضافت|يقول|تقول)\b",
    }
)  # fmt: skip

ORDINAL_BEFORE = frozenset(
    "der die das den dem des am im zum zur vom beim ab seit bis dieser diese dieses diesen diesem jeder jede jedes jeden jedem mein meine "
    "meinen meinem meiner dein deine deinen deinem deiner sein seine seinen seinem seiner ihr ihre ihren ihrem ihrer unser unsere unseren "
    "unserem unserer euer eure ein eine einen einem einer kein keine keinen keinem keiner".split()
)
"""After these German words a number with a full stop is an ordinal (der 18. Geburtstag) …"""

SENTENCE_STARTS = frozenset(
    "Der Die Das Den Dem Des Ein Eine Einen Er Sie Es Ich Du Wir Ihr Man Wer Was Wo Wann Warum Wie Danach Dann Dort Da Damit Darum Deshalb "
    "Daher Doch Aber Und Oder Denn Auch Dies Diese Dieser Dieses Diesen So Nun Jetzt Heute Gestern Morgen Später Zuerst Zuletzt Schließlich "
    "Außerdem Trotzdem Ja Nein Mein Meine Sein Seine Ihre Unser Unsere In Im Am An Auf Aus Bei Mit Nach Von Vor Zu Zum Zur Für Um Als Wenn "
    "Weil Ob Alle Alles Viele Manche Niemand Jeder Jede Jedes Keiner Nicht Hier Leider Vielleicht Inzwischen Seitdem Bitte".split()
)
"""… unless one of these follows (der 3. Danach …), which hardly is the noun that goes with it."""

ORDINAL_NOUNS = frozenset(
    "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember Jan Feb Apr Aug Sept Okt Nov Dez "
    "Jahrhundert Jahrhunderts Geburtstag Jahrestag Platz Klasse Stock Etage Auflage Lebensjahr Weltkrieg Liga Semester Bezirk Runde".split()
)
"""Before these a number with a full stop is an ordinal, whatever stands before it."""
