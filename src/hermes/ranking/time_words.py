"""Words for times in five languages, each with the code and the value by which `relative_times` reads it.

A line begins with a code, followed by values with their words; `_` stands for a space. The codes:
D day counted from today · T week, month or year counted from this one · U unit · P period · E weekend · W weekday · M
month · S season · H holiday · e w m the same without a preposition · R last, this, next · r the same after its noun ·
Q the last, of several · y such a year · N number · i ordinal · A ago · V ago, in front · I in · F from now · Z since,
with a period · C for, with a period · G a period up to now · O preposition (-1 since, 1 until, 0 others) · l early,
late · J the · g my · j an article that makes a weekday a habit · o of · c to · k pronoun · d part of a day · B every ·
b birthday · x another word.
"""

from __future__ import annotations

ENGLISH = """
D -2 the_day_before_yesterday · -1 yesterday last_night · 0 today tonight this_morning this_afternoon this_evening
D 1 tomorrow · 2 the_day_after_tomorrow
T -2w the_week_before_last · -2m the_month_before_last · -2y the_year_before_last · 2w the_week_after_next
U d day days · w week weeks · m month months · y year years
P 6m half_a_year · 2w a_fortnight
E 0 weekend
W 0 monday · 1 tuesday tues · 2 wednesday · 3 thursday thurs · 4 friday fri · 5 saturday · 6 sunday
M 1 january jan · 2 february feb · 3 march · 4 april apr · 5 may · 6 june jun · 7 july jul · 8 august aug
M 9 september sept sep · 10 october oct · 11 november nov · 12 december dec
S 0 spring · 1 summer · 2 autumn fall · 3 winter
H 12-25 christmas christmas_day · 12-24 christmas_eve · 12-31 new_year's_eve new_year’s_eve
R -1 last past this_past · 0 this · 1 next this_coming
N 1 a an one · 2 two couple_of a_couple_of a_couple · 3 three · 4 four · 5 five · 6 six · 7 seven · 8 eight · 9 nine
N 10 ten · 11 eleven · 12 twelve · 15 fifteen · 20 twenty · 30 thirty
A 0 ago
I 0 in
F 0 from_now from_today 's_time ’s_time '_time ’_time
C 0 for
O -1 since · 0 on at over during before after from of · 1 until till by
l 0 early late mid
J 0 the
g 0 my your his its our their
i 1 first · 2 second · 3 third
c 0 to through
k 0 i you he she it we they me him her us them
d 0 morning afternoon evening night
B 0 every each usually always mornings afternoons evenings nights
b 0 birthday anniversary born
x 0 black_friday good_friday people_today kids_today name_is it's it’s like_yesterday like_just_yesterday
"""
GERMAN = """
D -2 vorgestern · -1 gestern letzte_nacht · 0 heute heute_morgen · 1 morgen · 2 übermorgen
U d tag tage tagen · w woche wochen · m monat monate monaten monats · y jahr jahre jahren jahres
P 6m einem_halben_jahr · 9m einem_dreiviertel_jahr
E 0 wochenende
W 0 montag montagabend · 1 dienstag dienstagabend · 2 mittwoch mittwochabend · 3 donnerstag donnerstagabend
W 4 freitag freitagabend · 5 samstag samstagabend sonnabend · 6 sonntag sonntagabend
M 1 januar jänner · 2 februar · 3 märz · 4 april · 5 mai · 6 juni · 7 juli · 8 august · 9 september · 10 oktober
M 11 november · 12 dezember
S 0 frühling frühjahr · 1 sommer · 2 herbst · 3 winter
H 12-25 weihnachten · 12-24 heiligabend · 12-31 silvester
R -2 vorletzte vorletzten vorletztes · -1 letzte letzten letztes letzter vorige voriges vorigen vergangene vergangenen
R -1 vergangenes · 0 diese dieses diesen diesem dieser · 1 nächste nächsten nächstes nächster kommende kommenden
R 1 kommendes · 2 übernächste übernächsten übernächstes
N 1 ein eine einem einer einen · 2 zwei · 3 drei · 4 vier · 5 fünf · 6 sechs · 7 sieben · 8 acht · 9 neun · 10 zehn
N 11 elf · 12 zwölf · 15 fünfzehn · 20 zwanzig · 30 dreißig
V 0 vor
I 0 in
Z -1 seit
O -1 seit_dem · 0 am im an zu ab über · 1 bis bis_zum
l 0 anfang mitte ende
g 0 mein meine meinen meinem meiner unser unsere unserem unseren
d 0 abend vormittag nachmittag mittag früh
B 0 jeden jede jedes immer meistens alle
b 0 geburtstag geboren
x 0 guten_morgen am_morgen
"""
SPANISH = """
D -2 anteayer antier · -1 ayer anoche · 0 hoy esta_noche esta_mañana esta_tarde · 2 pasado_mañana
D 1 mañana mañana_por_la_mañana mañana_por_la_tarde mañana_por_la_noche
U d día días · w semana semanas · m mes meses · y año años
P 6m medio_año
E 0 fin_de_semana finde
W 0 lunes · 1 martes · 2 miércoles · 3 jueves · 4 viernes · 5 sábado · 6 domingo
M 1 enero · 2 febrero · 3 marzo · 4 abril · 5 mayo · 6 junio · 7 julio · 8 agosto · 9 septiembre · 10 octubre
M 11 noviembre · 12 diciembre
S 0 primavera · 1 verano · 2 otoño · 3 invierno
H 12-25 navidad navidades · 12-24 nochebuena · 12-31 nochevieja
R 0 este esta · 1 próximo próxima
r -1 pasado pasada · 1 que_viene
Q -1 últimos últimas
N 1 un una · 2 dos · 3 tres · 4 cuatro · 5 cinco · 6 seis · 7 siete · 8 ocho · 9 nueve · 10 diez · 11 once · 12 doce
N 15 quince · 20 veinte · 30 treinta
V 0 hace
I 0 dentro_de en
Z -1 desde_hace llevo llevamos lleva llevan
O -1 desde desde_el · 0 el del al · 1 hasta hasta_el para_el
l 0 principios_de finales_de mediados_de
o 0 de
B 0 cada todos todas siempre
b 0 cumpleaños
x 0 la_mañana una_mañana hoy_en_día hoy_día
"""
FRENCH = """
D -2 avant-hier · -1 hier la_nuit_dernière · 1 demain · 2 après-demain
D 0 aujourd'hui aujourd’hui ce_matin ce_soir cette_nuit cet_après-midi
U d jour jours · w semaine semaines · m mois · y an ans année années
E 0 week-end weekend
w 0 lundi · 1 mardi · 2 mercredi · 3 jeudi · 4 vendredi · 5 samedi · 6 dimanche
M 1 janvier · 2 février · 3 mars · 4 avril · 5 mai · 6 juin · 7 juillet · 8 août · 9 septembre · 10 octobre
M 11 novembre · 12 décembre
S 0 printemps · 1 été · 2 automne · 3 hiver
H 12-25 noël · 12-24 réveillon
R 0 ce cet cette
r -1 dernier dernière passé passée · 1 prochain prochaine
Q -1 derniers dernières
N 1 un une · 2 deux · 3 trois · 4 quatre · 5 cinq · 6 six · 7 sept · 8 huit · 9 neuf · 10 dix · 11 onze · 12 douze
N 15 quinze · 20 vingt · 30 trente
V 0 il_y_a
I 0 dans
Z -1 depuis ça_fait
O 0 en à au · 1 jusqu'à jusqu’à jusqu'en jusqu’en
l 0 début fin mi
j 0 le les du
o 0 de
d 0 matin soir après-midi
B 0 chaque tous_les toutes_les
b 0 anniversaire
x 0 mardi_gras
"""
CHINESE = """
D -3 大前天 · -2 前天 前晚 · -1 昨天 昨晚 昨夜 · 0 今天 今晚 今早 今晨 · 1 明天 明早 明晚 · 2 后天 · 3 大后天
y -2 前年 · -1 去年 · 0 今年 · 1 明年 · 2 后年
U d 天 · w 周 星期 个星期 礼拜 个礼拜 · m 个月 月 · y 年
P 6m 半年 · 15d 半个月
e 0 周末
w 0 周一 星期一 礼拜一 · 1 周二 星期二 礼拜二 · 2 周三 星期三 礼拜三 · 3 周四 星期四 礼拜四 · 4 周五 星期五 礼拜五
w 5 周六 星期六 礼拜六 · 6 周日 星期日 周天 星期天 礼拜天
m 1 一月 · 2 二月 · 3 三月 · 4 四月 · 5 五月 · 6 六月 · 7 七月 · 8 八月 · 9 九月 · 10 十月 · 11 十一月 · 12 十二月
S 0 春天 春季 · 1 夏天 夏季 · 2 秋天 秋季 · 3 冬天 冬季
H 12-25 圣诞节 · 12-24 平安夜
R -2 上上个 上上 · -1 上个 上 · 0 这个 这 本 · 1 下个 下 · 2 下下个 下下
N 1 一 · 2 两 二 · 3 三 · 4 四 · 5 五 · 6 六 · 7 七 · 8 八 · 9 九 · 10 十 · 11 十一 · 12 十二 · 15 十五 · 20 二十
A 0 前 以前 之前
F 0 后 以后 之后
G 0 了
B 0 每 每个
x 0 年级 天天 后天的 周年 年前年后 日后 晚上 早上 马上 路上 以前天天
"""
TABLES = {"en": ENGLISH, "de": GERMAN, "es": SPANISH, "fr": FRENCH, "zh": CHINESE}
COMMON = {
    "en": "the a i to and of is in it you my was on for that with we have me he she they are be at this had so not",
    "de": "der die das und ich ist nicht wir ein eine zu mit war auf habe hat den es sie er für von am im haben hier",
    "es": "el la de que y en un una mi es no los las por con me se lo su nos tengo fue para a está vamos hace",
    "fr": "le la les de des et je il elle un une est on nous j ai à mon ma pas c que dans sur pour a l ça du vous",
}
"""Frequent words that identify a language."""
VERBS = {
    "en": (
        r"(?P<been>been)|(?P<never>haven|hasn)|(?P<have>have|has|ve)|(?P<past>was|were|had|did|didn|went|got|came|saw|took|made|met"
        r"|bought|thought|told|said|left|felt|found|gave|ran|ate|drank|sat|stood|spent|lost|won|fell|flew|drove|wrote"
        r"|held|kept|heard|led|built|sent|brought|caught|taught|slept|swam|sang|broke|chose|grew|knew|threw|wore|became"
        r"|began|drew|fought|forgot|hid|paid|rode|sold|shot|stole|woke|hung|hit|cut|quit|seen|gone|done"
        r"|(?!need|indeed|excited|interested|tired|married|worried|scheduled|supposed|plan|hundred|speed)\w\w+ed)"
        r"|(?P<future>will|ll|shall|gonna|going|let|lets|hope|hoping|plan|plans|planning|should|must|want|might|can|is"
        r"|are|am|m|re|gets|starts|leaves|comes|goes|ends|opens|begins|arrives)"
    ),
    "de": (
        r"(?P<have>habe|hast|hat|haben|habt|bin|bist|ist|sind|seid|wurden?)|(?P<past>war|waren|warst|ging|gingen|kam"
        r"|kamen|gab|sah|sahen|fuhr|fuhren|fand|blieb|traf|rief|bekam|begann|lief|saß|(?!heute|bitte|möchte|könnte"
        r"|sollte|müsste|nächste|letzte|erste|zweite|dritte|beste|echte)[a-zäöüß]+te|(?:hat|woll|soll|konn|muss|durf)ten)"
        r"|(?P<future>werde|wirst|wird|werden|will|wollen|möchte|muss|müssen|soll|sollen|kann|können)"
        r"|(?P<been>(?:[a-zäöüß]{0,6}ge|be|ver|er|ent|zer)[a-zäöüß]+(?:t|en)|[a-zäöüß]+iert)"
    ),
    "es": (
        r"(?P<have>he|has|ha|hemos|han|había|habían)|(?P<future>vamos|voy|va|van|estamos|\w+[aei]r[éá]n?|\w+remos)"
        r"|(?P<past>fui|fue|fuimos|fueron|hice|hizo|hicimos|tuve|tuvo|tuvimos|estuve|estuvo|estuvimos|vi|vio|dije|dijo"
        r"|vine|vino|puse|puso|era|eran|\w+(?:é|ó|aste|iste|amos|imos|aron|ieron|aba|aban))"
        r"|(?P<been>\w+[ai]do|visto|hecho)"
    ),
    "fr": (
        r"(?P<have>ai|as|a|avons|avez|ont|suis|es|est|sommes|êtes|sont)|(?P<past>étions|étiez|(?!jamais|mais|vais|sais"
        r"|français|anglais|lait)\w+(?:ais|ait|aient))|(?P<future>vais|va|allons|vont|\w+(?:rai|ra|rons|ront))"
        r"|(?P<been>(?!été)\w+ée?s?|vu|eu|pris|fait|mis|dit|venue?s?|partie?s?|perdu|ouvert|reçu|lu|bu|pu|couru|fini"
        r"|choisi|dormi|rendu|vendu|appris|écrit|née?s?)"
    ),
    "zh": r"(?P<past>[了过])|(?P<future>[要会将想]|打算|准备)",
}
"""Patterns of verbs that show whether a sentence is about the past or the future: "past" and "future" alone, "have"
with "been" (an auxiliary and a participle) as the past; "never" is "haven't".
"""
