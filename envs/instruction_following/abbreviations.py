"""Where the sentence library needs help, language by language: data only.

``NEVER``: with a full stop these never end a sentence, whatever follows; compared as they are written. ``BEFORE_SMALL``: these do not
end one before a small letter, a digit or a Roman numeral; compared in any case, unless listed with a capital. ``TELLS``: what is said
of somebody who has just been quoted, so that quotation and words around it are one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _sets(words: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({code: _words(listed) for code, listed in words.items()})


NEVER: Mapping[str, frozenset[str]] = _sets(
    {
        "en": "Mr Mrs Ms Messrs Dr Prof Rev Hon Gov Sen Rep Gen Col Capt Lt Sgt Ft Mt incl Incl vs Vs viz cf Cf e.g i.e E.g I.e",
        "es": "D Dña Sr Sra Srta Sres Dr Dra Lic Ing Prof Profa Ud Uds Vd Vds Excmo Excma Ilmo Ilma Gral Cnel Avda Sto Sta Cf",
        "fre": "M MM Mme Mmes Mlle Mlles Dr Drs Pr Me Mgr St Ste cf Cf",
        "de": "Hrn Hr Dr Prof Dipl Ing Dipl.-Ing Dipl.-Kfm Mag St inkl Inkl exkl Exkl zzgl Zzgl abzgl Abzgl einschl Einschl "
        "geb gest max min ca Ca bzw evtl Evtl ggf Ggf vgl Vgl sog Nr Abb Abs Hrsg insb insbes Insb z.B Z.B d.h D.h i.d.R "
        "u.a allg dt engl frz lat kath ev verh wiss ehem Ehem",
        "it": "Sig Sigg Dott Prof Ing Avv Arch Geom Rag On Mons S SS P.zza Dott.ssa Prof.ssa Sig.ra Sig.na Cfr cfr",
        "pt-BR": "D S Sr Sra Srs Sras Srta Dr Dra Prof Profa Exmo Exma Ilmo Ilma Av R Eng Gen Cel Sto Sta Exa Cf cf",
        "hi": "डॉ श्री श्रीमती प्रो कु सु पं मि रु पृ सं ई.पू कि.मी मि.मी से.मी कि.ग्रा मि.ली वि.सं",
        "ar": "د أ م ق.م هـ ه ص ج أ.د",
    }
)  # fmt: skip

BEFORE_SMALL: Mapping[str, frozenset[str]] = _sets(
    {
        "en": "p pp vol ed min max approx est Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun Jan Feb Mar Apr Jun Jul Aug Sep Sept "
        "Oct Nov Dec lb lbs oz hr hrs secs mins incl excl eq eqs ch chap ft yd pts fig figs Fig sect ref refs art esp "
        "resp dept inc ltd co corp bros ave blvd rd st jr sr tel ext var ca cf vs misc temp orig trans eds No Nos a.m p.m "
        "a.d b.c b.c.e ph.d",
        "es": "p pp vol ed min max aprox a.c d.c a.m p.m cía cia pág págs cap caps art arts fig figs tel tfno núm núms ej av "
        "avda dpto depto edo gral izq dcha máx mín seg ene feb abr jun jul ago sept oct nov dic lun mié jue vie sáb dom "
        "ref vid v.gr p.ej s.a s.l ee.uu ltda hnos",
        "fre": "p pp vol ed min max ex bd No nos c.-à-d av apr j.-c env chap art fig tél janv févr avr juil sept oct nov déc lun "
        "jeu ven sam dim réf hab éd coll trad cie ste boul p.ex c.à.d s.a",
        "de": "p pp vol ed min max bd inkl exkl geb gest tel art kap fig tab str jh jhd mio mrd std sek jan feb apr jun jul aug "
        "sept okt nov dez Mo Di Mi Do Fr Sa So abb abs nr ca bzw evtl ggf vgl usw etc bspw aufl verf bes gem ungef pos "
        "v.chr n.chr u.a u.ä o.ä",
        "it": "p pp vol ed min max pag pagg n nn a.c d.c s.p.a s.r.l cap capp art artt fig figg tel ca es ecc gen feb apr mag "
        "giu lug ago sett ott nov dic lun gio ven sab dom ass rif prof p.es c.a a.m p.m prov",
        "pt-BR": "p pp vol ed min max ltda ex pág págs cap caps núm nº tel séc a.c d.c cia aprox n etc máx mín jan fev mar abr jun "
        "jul ago set out nov dez sáb dom art arts fig figs ref obs av ap apto depto exa Sa p.ex a.m p.m s.a",
        "hi": "p",
        "ar": "ص ج هـ",
    }
)  # fmt: skip

TELLS: Mapping[str, str] = MappingProxyType(
    {
        "en": r"\p{Lu}\w+(?: \p{Lu}\w+)? "
        r"(?:said|asked|replied|answered|cried|shouted|whispered|called|yelled|added|exclaimed|muttered)\b",
        "zh": r"[^。！？，,]{0,12}(?:[说說问問喊叫嚷吼]|[回应應]?答"
        r"|(?<![知味街轨])道(?![路理歉德])|嘀咕|低语|低語"
        r"|解释|解釋|补充|補充|感叹|感嘆|宣布)",
        "ja": r"(?:と|って|など)|[^。！？、]{0,12}(?:言[いうわっ]|叫[びんぶ]|答え|尋ね|聞い|話し|つぶや|ささや)",
        "ko": r"[^.!?,]{0,20}(?:말했|말하|말한|외쳤|외치|물었|묻|물어|대답|답했|소리|속삭"
        r"|중얼|덧붙|설명|전했|밝혔|강조|(?<!\w)했다|(?<!\w)한다)",
        "hi": r"[^.!?।,]{0,24}(?:कह|बोल|पूछ|चिल्ला|पुकार|बताय|जवाब|उत्तर दिया|फुसफुसा)",
        "ar": r"\W*(?:و|ف)?(?:قال|قالت|قالوا|صاح|صاحت|صرخ|صرخت|سأل|سألت|أجاب|أجابت)\b"
        r"|\W*(?:و|ف)?(?:هتف|هتفت|همس|همست|رد|ردت|ردّ|ردّت|نادى|نادت|أضاف|أضافت|يقول|تقول)\b",
    }
)  # fmt: skip

INITIAL_BEFORE = _words(
    "de del da do di du von van der la le y e et und and by por per par con com mit with a an à für pour para of to from o ou oder or"
)
"""After these, at the start of a sentence, or after another full stop a single capital with a full stop is somebody's initial."""

ORDINAL_BEFORE = _words(
    "der die das den dem des am im zum zur vom beim ab seit bis dieser diese dieses diesen diesem jeder jede jedes jeden "
    "jedem mein meine meinen meinem meiner dein deine deinen deinem deiner sein seine seinen seinem seiner ihr ihre ihren "
    "ihrem ihrer unser unsere unseren unserem unserer euer eure ein eine einen einem einer kein keine keinen keinem keiner"
)
"""After these German words a number with a full stop is an ordinal (der 18. Geburtstag) …"""

SENTENCE_STARTS = _words(
    "Der Die Das Den Dem Des Ein Eine Einen Er Sie Es Ich Du Wir Ihr Man Wer Was Wo Wann Warum Wie Danach Dann Dort Da "
    "Damit Darum Deshalb Daher Doch Aber Und Oder Denn Auch Dies Diese Dieser Dieses Diesen So Nun Jetzt Heute Gestern "
    "Morgen Später Zuerst Zuletzt Schließlich Außerdem Trotzdem Ja Nein Mein Meine Sein Seine Ihre Unser Unsere In Im Am An "
    "Auf Aus Bei Mit Nach Von Vor Zu Zum Zur Für Um Als Wenn Weil Ob Alle Alles Viele Manche Niemand Jeder Jede Jedes "
    "Keiner Nicht Hier Leider Vielleicht Inzwischen Seitdem Bitte"
)
"""… unless one of these follows (der 3. Danach …), which hardly is the noun that goes with it."""

ORDINAL_NOUNS = _words(
    "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember Jan Feb Apr Aug Sept Okt Nov "
    "Dez Jahrhundert Jahrhunderts Geburtstag Jahrestag Platz Klasse Stock Etage Auflage Lebensjahr Weltkrieg Liga Semester "
    "Bezirk Runde"
)
"""Before these a number with a full stop is an ordinal, whatever stands before it."""
