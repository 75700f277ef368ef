"""Where a full stop ends no sentence, language by language: data only.

An entry is compared in any case, unless it is listed with a capital: then as it is written, or all in capitals. One
with ``=`` is compared as written, or with a capital at a sentence's start (Max is a name), one with ``#`` only after a
number, one with ``+`` only before one. Parts may have blanks between: p.ex is also ``p. ex``. The languages without
letter case have the English entries too, for the Latin words in them. ``NEVER``: with a full stop these never end a
sentence, whatever follows. ``BEFORE_NAMES``: these end none before a small letter, a digit, or a capitalised word that
is none of ``STARTS``. ``BEFORE_SMALL``: these end none before a small letter, a digit or a Roman numeral. Every other
word does. ``TELLS``: what is said of somebody who has just been quoted, so that quotation and words around it are one
sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _split_words(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _make_sets(words: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({code: _split_words(listed) for code, listed in words.items()})


NEVER: Mapping[str, frozenset[str]] = _make_sets(
    {
        "en": "mr mrs Ms messrs dr Drs prof profs e.g i.e viz cf Hon Esqs attn",
        "es": "D dña Dª sr sra srta sres sras dr dra dres lic Ing prof profa excmo excma ilmo ilma cf p.ej p.e por.ej",
        "fre": "M MM mme mmes mlle mlles dr drs Pr Me mgr cf p.ex par.ex c.-à-d c.à.d",
        "de": "Hrn Hr dr prof dipl Ing Dipl.-Ing Dipl.-Kfm Mag inkl exkl zzgl abzgl einschl ausschl geb gest =max "
              "=min ca bzw "
        "bspw evtl ggf ggfs vgl sog nr Nrn abb Abs hrsg insb insbes z.b d.h i.d.r u.a m.e i.a s.o s.u v.a z.t u.u "
        "z.zt o.g "
        "allg dt engl =franz frz =v lat kath ev verh wiss ehem gem",
        "it": "sig sigg dott prof proff Ing ing avv arch geom rag On mons S SS p.zza dott.ssa prof.ssa sig.ra "
              "sig.na cfr p.es "
        "ad.es per.es",
        "pt-BR": "D S sr sra srs sras srta dr dra drs profa prof exmo exma ilmo ilma cf p.ex por.ex",
        "hi": "डॉ श्री श्रीमती प्रो कु सु पं मि रु पृ सं ई.पू कि.मी मि.मी से.मी कि.ग्रा मि.ली वि.सं #मी "
        "#किमी #सेमी #मिमी #किग्रा #ग्रा #मिग्रा #ली #मिली",
        "ar": "د أ م ق.م هـ ه ص ج أ.د",
    }
)  # fmt: skip

BEFORE_NAMES: Mapping[str, frozenset[str]] = _make_sets(
    {
        "en": "Rev Gov Sen Rep Gen Col Capt Lt Sgt Cpl Pvt Maj Cmdr Cdr Adm Brig Pres Supt Det Insp Amb Fr Br Sr Ft "
              "Mt Mts St "
        "Sts incl vs v u.s u.k u.n e.u approx est",
        "es": "gral cnel Cap Avda Av Sto Sta Ntra Arq Dpto Prov Pza Ctra ee.uu",
        "fre": "St Ste Sts Stes bd av apr pl gén Cap Prof Col Lt",
        "de": "Fr Frl Co mio mrd tsd #std #min #sek St Str Bd Kap Gebr Fa Abt Ziff",
        "it": "=gen =col =cap =ten =pres =sen dr Ill Egr Gent Spett v.le c.so l.go",
        "pt-BR": "av R =eng Eng Gen =gen Cel =cel Cap Ten Sto Sta pça Al Rod Dep Sen Pres",
    }
)  # fmt: skip

BEFORE_SMALL: Mapping[str, frozenset[str]] = _make_sets(
    {
        "en": "p pp vol ed min max approx est sec para fn cl cit ca Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun Jan "
              "Feb Mar "
        "Apr Jun Jul Aug Sep Sept Oct Nov Dec lb lbs oz hr hrs secs mins incl excl eq eqs ch chap ft yd pts fig "
        "figs Fig sect "
        "ref refs art esp resp dept inc ltd co corp bros ave blvd rd st jr sr tel ext var ca cf vs misc temp orig "
        "trans eds No "
        "Nos +no +nos etc al tbsp tsp asst assn bldg mfg hosp univ hwy ibid op exec adj adv intl natl govt "
        "Calif Mich Wis Tenn Ariz Conn Fla Minn Okla Tex Neb Nev Ala Ark Ky Vt Wyo a.m p.m a.d b.c b.c.e ph.d",
        "es": "etc p pp al univ ud uds vd vds dep cta inst "
        "vol ed min max aprox a.c d.c a.m p.m cía cia pág págs cap caps art arts fig figs tel tfno núm núms ej av "
        "avda dpto depto edo gral izq dcha máx mín seg ene feb abr jun jul ago sept oct nov dic lun mié jue vie sáb "
        "dom ref "
        "vid v.gr p.ej s.a s.l ee.uu ltda hnos",
        "fre": "etc p pp al sq sqq ibid suiv fasc suppl univ "
        "vol ed min max ex bd no nos cit c.-à-d av apr j.-c env chap art fig tél janv févr avr juil sept oct nov "
        "déc lun jeu ven sam dim réf hab éd coll trad cie ste boul p.ex c.à.d s.a",
        "de": "S p pp al bzgl usf mwst buchst ref eds corp inc "
        "vol ed min max bd inkl exkl geb gest tel art kap fig tab str jh jhd mio mrd std sek jan feb apr jun jul "
        "aug sept okt nov dez Mo Di Mi Do Fr Sa So abb abs nr ca bzw evtl ggf vgl usw etc bspw aufl verf bes gem "
        "ungef pos "
        "v.chr n.chr u.a u.ä o.ä",
        "it": "etc p pp al fasc seg segg univ "
        "vol ed min max pag pagg n nn cit int sez par sec s op fasc tab cod civ proc pen cost lett ediz racc c.c "
        "c.p.c c.p a.c d.c s.p.a s.r.l cap capp art artt fig figg tel ca es ecc gen feb apr mag giu lug ago sett "
        "ott nov dic "
        "lun gio ven sab dom ass rif prof p.es c.a a.m p.m prov",
        "pt-BR": "p pp al col rev cit lda univ "
        "vol ed min max ltda ex pág págs cap caps núm nº tel séc a.c d.c cia aprox n etc máx mín jan fev mar abr "
        "jun jul ago set out nov dez sáb dom art arts fig figs ref obs av ap apto depto exa Sa p.ex a.m p.m s.a",
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

STARTS: Mapping[str, frozenset[str]] = _make_sets(
    {
        "en": "The A An This That These Those There Here He She It We You I They My Your His Her Its Our Their Who "
              "What When "
        "Where Why How Which And But Or So Then Now Later After Before Afterwards Also However Still Yet If While "
        "Because "
        "Since Although Though Once As At In On Of For From With Without By To Not No Yes Nobody Everyone Everybody "
        "Somebody "
        "Some Many Most Few All Both Each Every One Two Three Another Other Such Is Are Was Were Do Does Did Has "
        "Have Had Can "
        "Could Should Would Will Let Please Perhaps Maybe Today Tomorrow Yesterday Finally First Next Meanwhile "
        "Instead "
        "Therefore Thus Even Just Only Nothing Everything",
        "es": "El La Los Las Un Una Unos Unas Lo Él Ella Ellos Ellas Yo Tú Usted Ustedes Nosotros Nos Me Te Se Le "
              "Les Mi Mis "
        "Tu Tus Su Sus Este Esta Estos Estas Esto Ese Esa Eso Aquel Aquella Y E O Pero Mas Sino Si Sí No Ni Que "
        "Qué Quien "
        "Quién Cuando Cuándo Donde Dónde Como Cómo Porque Aunque Mientras Luego Después Antes Entonces Ahora Ayer "
        "Hoy Mañana "
        "También Tampoco Ya Aún Todavía Así Además Por Para En De Del Al A Con Sin Sobre Desde Hasta Tras Entre Hay "
        "Es Son Era "
        "Fue Está Todo Toda Todos Todas Nada Nadie Algunos Muchos Cada Otro Otra Hace Finalmente Allí Aquí",
        "fre": "Le La Les Un Une Des Il Elle Ils Elles On Je Tu Nous Vous Ce Cette Cet Ces Cela Ça Mon Ma Mes Ton "
               "Ta Tes Son "
        "Sa Ses Notre Votre Leur Leurs Et Ou Mais Donc Or Ni Car Si Que Qui Quoi Quand Où Comment Pourquoi Parce "
        "Puis Ensuite "
        "Après Avant Alors Maintenant Hier Demain Aussi Ainsi Enfin Encore Déjà Toujours Jamais Dans En De Du Au "
        "Aux À Par "
        "Pour Sur Sous Avec Sans Chez Depuis Pendant Lorsque Comme Est Sont Était Tout Toute Tous Toutes Rien "
        "Personne Chaque "
        "Plusieurs Certains Beaucoup Ne Pas Oui Non Voici Voilà Ici Là Cependant Pourtant Finalement Tandis Aujourd "
        "C' D' J' "
        "L' M' N' S' T' Qu'",
        "de": "Der Die Das Den Dem Des Ein Eine Einen Einem Einer Er Sie Es Ich Du Wir Ihr Man Wer Was Wo Wann "
              "Warum Wie "
        "Danach Dann Dort Da Damit Dabei Dadurch Davon Dazu Darum Deshalb Daher Doch Aber Und Oder Denn Auch Dies "
        "Diese Dieser "
        "Dieses Diesen Jene So Nun Jetzt Heute Gestern Morgen Später Zuerst Zuletzt Schließlich Außerdem Trotzdem "
        "Dennoch "
        "Jedoch Ja Nein Mein Meine Dein Deine Sein Seine Ihre Unser Unsere In Im Am An Auf Aus Bei Mit Nach Von Vor "
        "Zu Zum Zur "
        "Für Um Als Wenn Weil Ob Obwohl Während Seit Bis Durch Gegen Ohne Über Unter Zwischen Alle Alles Viele "
        "Manche Einige "
        "Niemand Jeder Jede Jedes Keiner Keine Nicht Nichts Hier Leider Vielleicht Inzwischen Seitdem Bitte Wieder "
        "Noch Nur "
        "Sogar Ist Sind War Waren Hat Haben Wird Kann Beide Andere Solche",
        "it": "Il Lo La I Gli Le Un Uno Una L' Lui Lei Loro Noi Voi Io Tu Egli Ella Esso Mi Ti Ci Vi Si Ne Mio Mia "
              "Tuo Sua Suo "
        "Questo Questa Questi Queste Quello Quella E Ed O Ma Se Che Chi Cosa Quando Dove Come Perché Poi Dopo Prima "
        "Allora Ora "
        "Adesso Ieri Oggi Domani Anche Ancora Già Così Inoltre Infine Però Quindi Dunque Mentre Invece In Nel Nella "
        "Nei Di Del "
        "Della Dei Al Alla A Da Dal Dalla Con Per Su Sul Sulla Tra Fra Senza È C' Un' Dell' Nell' All' Quell' "
        "Quest' D' S' M' "
        "N' Era Sono Ha Hanno Tutto Tutti Niente Nessuno Ogni Molti Alcuni Non Sì No Ecco Qui Lì",
        "pt-BR": "O A Os As Um Uma Uns Umas Ele Ela Eles Elas Eu Tu Você Vocês Nós Me Te Se Meu Minha Teu Seu Sua "
                 "Seus Suas "
        "Nosso Este Esta Isto Esse Essa Isso Aquele Aquela Aquilo E Ou Mas Porém Que Quem Quando Onde Como Porque "
        "Por Para "
        "Pelo Pela Embora Enquanto Depois Antes Então Agora Ontem Hoje Amanhã Também Já Ainda Assim Além Em No Na "
        "Nos Nas De "
        "Do Da Dos Das Ao À Com Sem Sobre Desde Até Entre Há É São Era Foi Está Tudo Todo Todos Todas Nada "
        "Ninguém Alguns "
        "Muitos Cada Outro Outra Não Sim Finalmente Logo Lá Aqui Nem Se",
    }
)  # fmt: skip
"""Capitalised words that begin sentences, and hardly ever are the name or noun that goes with an abbreviation or a
number before it.
"""

COUNTED: frozenset[str] = _split_words(
    "vol vols bd bde tom tomo t ch chap cap caps kap abb nr nº núm num pt pts sect sez op teil lib bk"
)
"""After these a single capital can be a Roman numeral (Vol. I of it, but: at 5 p.m. I left)."""

INITIAL_BEFORE: Mapping[str, frozenset[str]] = _make_sets(
    {
        "en": "by with and of to from for or",
        "es": "de por y e con a para o la",
        "fre": "de par et avec à pour ou",
        "de": "von mit und an für oder durch bei",
        "it": "di da e con a per o",
        "pt-BR": "de do da por e com a para ou",
    }
)
"""After these, at the start of a sentence, or after another full stop a single capital with a full stop is somebody's
initial …
"""

LETTERED: frozenset[str] = _split_words(
    "Vitamin Plan Team Group Option Type Class Grade Hepatitis Part Section Appendix Figure Table Room Block "
    "Building Exhibit Question "
    "Answer Choice Point Line Level Series Model Version Category Phase Step Side Terminal Gate Vitamina Grupo "
    "Gruppo Groupe Opción "
    "Opzione Opção Tipo Clase Classe Parte Punto Ponto Equipo Squadra Time Équipe Vitamine Plano Piano Caso Cas "
    "Case Section Sección "
    "Sezione Seção Apéndice Appendice Apêndice Annexe Anexo Allegato Figura Tabla Tabella Tabela Salle Sala Aula "
    "Bloque Blocco Bloco"
)
"""… and after a capitalised word (George W. Bush), unless it is one of these (Plan B. Peter agreed)."""

HINDI_LETTERS: frozenset[str] = _split_words(
    "ए बी सी डी ई एफ जी एच आई जे के एल एम एन ओ पी क्यू आर एस टी यू वी डब्ल्यू एक्स वाई जेड"
)
"""The names of the Latin letters, with which Hindi writes initials (के. आर. नारायणन)."""

ORDINAL_BEFORE = _split_words(
    "der die das den dem des am im zum zur vom beim ab seit bis dieser diese dieses diesen diesem jeder jede "
    "jedes jeden "
    "jedem mein meine meinen meinem meiner dein deine deinen deinem deiner sein seine seinen seinem seiner ihr "
    "ihre ihren "
    "ihrem ihrer unser unsere unseren unserem unserer euer eure ein eine einen einem einer kein keine keinen "
    "keinem keiner"
)
"""After these German words a number with a full stop is an ordinal (der 18. Geburtstag) …"""

ORDINAL_NOUNS = _split_words(
    "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember Jan Feb Apr Aug Sept "
    "Okt Nov "
    "Dez Jahrhundert Jahrhunderts Geburtstag Jahrestag Platz Klasse Stock Etage Auflage Lebensjahr Weltkrieg Liga "
    "Semester "
    "Bezirk Runde"
)
"""Before these a number with a full stop is an ordinal, whatever stands before it."""

LINE_NOUNS = _split_words(
    "FC Bundesliga Advent Halbzeit Spieltag Person Generation Todestag Hochzeitstag Weihnachtstag Feiertag "
    "Schuljahr Obergeschoss OG "
    "Sinfonie Symphonie Ableitung Quartal Halbjahr Jahrtausend Etappe Grad Deutsche Deutscher und bis oder"
)
"""These also follow an ordinal at the start of a line, where no other number opens an item (1.

FC Köln, 1. und 2. Platz).
"""
