"""Sample texts in several languages: statements, each with a question that it answers, and small talk."""

from __future__ import annotations

GERMAN = """
Meine Schwester hat im März eine Bäckerei in Leipzig eröffnet. | Wo hat die Schwester ihre Bäckerei?
Der Zahnarzt hat meinen Termin auf Donnerstag verschoben. | Auf welchen Tag wurde der Zahnarzttermin verschoben?
Ich lerne seit zwei Jahren Geige bei Frau Petersen. | Bei wem nimmst du Geigenunterricht?
Das Auto steht in der Werkstatt, die Bremsen sind hin. | Was ist am Auto kaputt?
Unser Kater heißt Moritz und ist vierzehn Jahre alt. | Wie heißt der Kater?
Ich vertrage keine Haselnüsse, davon schwillt mir der Hals zu. | Welche Nüsse verträgst du nicht?
Im Sommer fahren wir wieder an die Müritz zum Segeln. | Wo geht ihr segeln?
Mein Großvater war Uhrmacher in Glashütte. | Welchen Beruf hatte der Großvater?
Den Schlüssel zum Keller habe ich unter den Blumentopf gelegt. | Wo liegt der Kellerschlüssel?
Lukas macht im Herbst sein Abitur und will Physik studieren. | Was möchte Lukas studieren?
Wir haben die Küche in einem dunklen Grün gestrichen. | In welcher Farbe ist die Küche gestrichen?
Die neue Wohnung kostet elfhundert Euro warm. | Wie hoch ist die Miete der Wohnung?
Beim Halbmarathon in Kassel habe ich mir den Knöchel verstaucht. | Wobei hast du dir den Knöchel verletzt?
Jeden Mittwoch singe ich im Kirchenchor Tenor. | An welchem Tag probt der Chor?
Meine Kollegin Svenja geht im Juni in Elternzeit. | Wer geht in Elternzeit?
Das WLAN im Gartenhaus reicht nur bis zum Apfelbaum. | Wie weit reicht das WLAN?
Zum Geburtstag wünscht sich Oma ein Hörbuch von Fontane. | Was wünscht sich Oma zum Geburtstag?
Ich trinke meinen Kaffee schwarz und ohne Zucker. | Wie trinkst du deinen Kaffee?
Der Hund der Nachbarn hat unser Hochbeet umgegraben. | Wer hat das Hochbeet zerstört?
Unsere Hochzeit war auf einem Schiff auf der Elbe. | Wo habt ihr geheiratet?
Ich habe die Rechnung vom Klempner noch nicht bezahlt. | Welche Rechnung ist noch offen?
Für die Steuer fehlt mir die Bescheinigung der Krankenkasse. | Welche Bescheinigung fehlt für die Steuererklärung?
"""
GERMAN_BESIDE = """
Guten Morgen, hast du gut geschlafen?
Ja, danke, und du?
Das Wetter ist heute wirklich schön.
Stimmt, endlich wieder Sonne.
Was machst du am Wochenende?
Mal sehen, vielleicht ein bisschen ausruhen.
Klingt gut!
Das freut mich sehr für dich.
Wie war dein Tag?
Ganz in Ordnung, viel zu tun.
Bis später dann.
Ja, wir hören uns.
"""
SPANISH = """
Mi hermana abrió una panadería en Valencia en marzo. | ¿Dónde está la panadería de la hermana?
El dentista me cambió la cita para el jueves. | ¿Para qué día quedó la cita del dentista?
Llevo dos años aprendiendo violín con el profesor Ibarra. | ¿Quién te enseña violín?
El coche está en el taller porque fallan los frenos. | ¿Qué le pasa al coche?
Nuestro gato se llama Canelo y tiene catorce años. | ¿Cómo se llama el gato?
Soy alérgica a las almendras, se me hincha la garganta. | ¿A qué eres alérgica?
En verano volvemos al lago de Sanabria a remar. | ¿A qué lago vais en verano?
Mi abuelo era relojero en Burgos. | ¿En qué trabajaba el abuelo?
Dejé la llave del sótano debajo de la maceta. | ¿Dónde está la llave del sótano?
Lucas termina el bachillerato y quiere estudiar física. | ¿Qué quiere estudiar Lucas?
Pintamos la cocina de un verde oscuro. | ¿De qué color pintasteis la cocina?
El piso nuevo cuesta novecientos euros al mes. | ¿Cuánto cuesta el piso nuevo?
En la media maratón de Bilbao me torcí el tobillo. | ¿Dónde te torciste el tobillo?
Los miércoles canto en el coro de la parroquia. | ¿Qué día canta en el coro?
Mi compañera Noelia coge la baja de maternidad en junio. | ¿Quién coge la baja de maternidad?
El wifi de la caseta solo llega hasta el manzano. | ¿Hasta dónde llega el wifi?
La abuela quiere un audiolibro de Galdós por su cumpleaños. | ¿Qué regalo quiere la abuela?
Tomo el café solo y sin azúcar. | ¿Cómo tomas el café?
El perro de los vecinos nos destrozó el huerto. | ¿Quién destrozó el huerto?
Nos casamos en un barco en la ría. | ¿Dónde os casasteis?
Todavía no he pagado la factura del fontanero. | ¿Qué factura falta por pagar?
Para la declaración me falta el certificado del banco. | ¿Qué certificado falta para la declaración?
"""
SPANISH_BESIDE = """
Buenos días, ¿has dormido bien?
Sí, gracias, ¿y tú?
Hoy hace muy buen tiempo.
Es verdad, por fin sale el sol.
¿Qué haces el fin de semana?
Ya veremos, quizá descansar un poco.
¡Suena bien!
Me alegro mucho por ti.
¿Qué tal el día?
Bastante bien, mucho trabajo.
Hasta luego entonces.
Sí, hablamos.
"""
CHINESE = """
我妹妹三月份在成都开了一家面包店。 | 妹妹的面包店在哪里？
牙医把我的预约改到了星期四。 | 牙医的预约改到星期几？
我跟王老师学小提琴已经两年了。 | 谁教你拉小提琴？
车送去修理厂了，刹车坏了。 | 车哪里坏了？
我们家的猫叫豆豆，今年十四岁。 | 你们家的猫叫什么名字？
我对花生过敏，一吃喉咙就肿。 | 你对什么过敏？
夏天我们还去千岛湖划船。 | 夏天去哪里划船？
我爷爷以前在苏州修钟表。 | 爷爷以前做什么工作？
地下室的钥匙我放在花盆下面了。 | 地下室的钥匙放在哪里？
小杰今年高考，想学物理专业。 | 小杰想学什么专业？
我们把厨房刷成了深绿色。 | 厨房刷成了什么颜色？
新房子每个月租金四千五百块。 | 新房子的租金是多少？
跑杭州半程马拉松的时候我扭伤了脚踝。 | 脚踝是什么时候扭伤的？
每个星期三晚上我去合唱团唱歌。 | 合唱团星期几活动？
我同事小林六月份开始休产假。 | 谁要休产假？
院子里的无线网只能到苹果树那边。 | 无线网能到哪里？
奶奶过生日想要一台收音机。 | 奶奶生日想要什么？
我喝咖啡不加糖也不加奶。 | 你喝咖啡加糖吗？
邻居家的狗把我们的菜地刨坏了。 | 谁把菜地弄坏了？
我们是在西湖的船上办的婚礼。 | 婚礼在哪里办的？
水管工的账单我还没付。 | 哪张账单还没付？
报税还差一张医院的证明。 | 报税还缺什么证明？
"""
CHINESE_BESIDE = """
早上好，昨天睡得好吗？
挺好的，谢谢，你呢？
今天天气真不错。
是啊，终于出太阳了。
周末打算做什么？
再说吧，可能休息一下。
听起来不错！
真替你高兴。
今天过得怎么样？
还可以，就是有点忙。
那回头再聊。
好的，再见。
"""
JAPANESE = """
妹が三月に京都でパン屋を開きました。 | 妹のパン屋はどこにありますか。
歯医者の予約が木曜日に変わりました。 | 歯医者の予約は何曜日ですか。
田中先生にバイオリンを習って二年になります。 | バイオリンは誰に習っていますか。
車が修理工場に入っています。ブレーキが壊れました。 | 車のどこが壊れましたか。
うちの猫の名前はタマで、十四歳です。 | 猫の名前は何ですか。
私はそばアレルギーで、食べると喉が腫れます。 | 何のアレルギーがありますか。
夏はまた琵琶湖へボートを漕ぎに行きます。 | 夏はどの湖へ行きますか。
祖父は諏訪で時計職人をしていました。 | 祖父の仕事は何でしたか。
地下室の鍵は植木鉢の下に置きました。 | 地下室の鍵はどこですか。
健太は大学で物理を勉強したいそうです。 | 健太は大学で何を勉強したいですか。
台所の壁を濃い緑色に塗りました。 | 台所の壁は何色ですか。
新しい部屋の家賃は九万円です。 | 家賃はいくらですか。
ハーフマラソンで足首を捻挫しました。 | 足首を捻挫したのはいつですか。
毎週水曜日は合唱団で歌っています。 | 合唱団は何曜日ですか。
同僚の佐藤さんは六月から育児休暇です。 | 育児休暇を取るのは誰ですか。
庭の無線はリンゴの木までしか届きません。 | 無線はどこまで届きますか。
祖母は誕生日にラジオが欲しいそうです。 | 祖母は誕生日に何が欲しいですか。
コーヒーは砂糖なしのブラックで飲みます。 | コーヒーはどうやって飲みますか。
隣の犬が畑を掘り返してしまいました。 | 畑を掘り返したのは誰ですか。
結婚式は隅田川の船の上でした。 | 結婚式はどこでしましたか。
水道屋さんの請求書をまだ払っていません。 | まだ払っていない請求書はどれですか。
確定申告に保険の証明書が足りません。 | 確定申告に何が足りませんか。
"""
JAPANESE_BESIDE = """
おはよう、よく眠れましたか。
はい、ありがとう。あなたは？
今日は本当にいい天気ですね。
そうですね、やっと晴れました。
週末は何をしますか。
まだわかりません、少し休むかも。
いいですね。
それはよかったです。
今日はどうでしたか。
まあまあです、忙しかったです。
ではまた後で。
はい、また話しましょう。
"""
ARABIC = """
افتتحت أختي مخبزا في مراكش في شهر مارس. | أين مخبز أختي؟
غير طبيب الأسنان الموعد إلى يوم الخميس. | في أي يوم موعد طبيب الأسنان؟
أتعلم العزف على الكمان منذ سنتين مع الأستاذ سمير. | مع من تتعلم الكمان؟
السيارة في الورشة بسبب عطل الفرامل. | ما عطل السيارة؟
قطتنا اسمها لولو وعمرها أربع عشرة سنة. | ما اسم القطة؟
عندي حساسية من الفستق ويتورم حلقي. | من ماذا عندك حساسية؟
في الصيف نعود إلى بحيرة بنزرت للتجديف. | إلى أي بحيرة تذهبون في الصيف؟
كان جدي يصلح الساعات في دمشق. | ماذا كان يصلح جدي؟
وضعت مفتاح القبو تحت أصيص الزهور. | أين مفتاح القبو؟
ينهي كريم المدرسة ويريد دراسة الفيزياء. | ماذا يريد كريم دراسة بعد المدرسة؟
دهنا المطبخ باللون الأخضر الداكن. | ما لون المطبخ؟
إيجار الشقة الجديدة سبعمئة دينار. | كم إيجار الشقة الجديدة؟
التوى كاحلي في سباق نصف الماراثون. | أين التوى كاحلي؟
أغني في الجوقة كل يوم أربعاء. | في أي يوم تغني الجوقة؟
زميلتي هدى تبدأ إجازة الأمومة في يونيو. | من تبدأ إجازة الأمومة؟
شبكة الحديقة لا تصل إلا إلى شجرة التفاح. | إلى أين تصل شبكة الحديقة؟
جدتي تريد مذياعا في عيد ميلادها. | ماذا تريد جدتي في عيد ميلادها؟
أشرب القهوة سادة بدون سكر. | كيف تشرب القهوة؟
كلب الجيران خرب حوض الخضار. | من خرب حوض الخضار؟
أقمنا العرس على سفينة في النيل. | أين أقمتم العرس؟
لم أدفع فاتورة السباك بعد. | أي فاتورة لم تدفع؟
تنقصني شهادة التأمين من أجل الضرائب. | أي شهادة تنقص من أجل الضرائب؟
"""
ARABIC_BESIDE = """
صباح الخير، هل نمت جيدا؟
نعم شكرا، وأنت؟
الطقس جميل اليوم.
صحيح، أشرقت الشمس أخيرا.
ماذا تفعل في نهاية الأسبوع؟
سنرى، ربما أرتاح قليلا.
يبدو جيدا!
أنا سعيد من أجلك.
كيف كان يومك؟
لا بأس، كثير من العمل.
إلى اللقاء إذن.
نعم، نتكلم لاحقا.
"""
ASSISTANT = """
cycling | I ride a steel touring bike with 42 mm tyres and I weigh 81 kg.
Which tyres does my bike have? | 3.1 bar | Which pressure did you recommend for my tyres?
sourdough | My starter is called Gerald and I feed it rye flour every evening.
What is my starter called? | 76 percent | Which hydration did you suggest for the dough?
taxes | I moved from Lyon to Ghent in February, so two countries want my taxes.
Where did I move from in February? | form 276 | Which form did you tell me to fill in?
knee | My left knee has hurt since I fell down the cellar stairs.
Why does my knee hurt? | six weeks | How long should I rest the knee, as you said?
garden | The soil behind my shed is heavy clay and in the shade after two.
What is the soil behind my shed like? | hellebores | What did you suggest planting in the shade?
python | My script reads 40 GB of logs and dies with a MemoryError on our build machine Juno.
What is our build machine called? | chunks of 64 MB | How large should the chunks be?
wedding | We are getting married on a barge near Utrecht, with 35 guests.
How many guests come to our wedding? | two vegetarian menus | What did you propose for the menus?
guitar | I restrung my grandfather's parlour guitar and now the neck is bent.
Whose guitar did I restring? | silk and steel strings | Which strings did you recommend?
visa | My visa for Vietnam was refused because the photograph was too dark.
Why was my visa refused? | at least 300 dpi | Which resolution should the photograph have?
sleep | I wake at four every night since the night shifts at the bakery ended.
When do I wake at night? | no screens after nine | What did you advise about screens?
boiler | The boiler in our flat is a Vaillant from 1998 and it whistles.
How old is the boiler? | bleed the top radiator | What should I do first about the whistling?
chess | I always lose with the Caro-Kann against my neighbour Oleg.
Whom do I lose against at chess? | the advance variation | Which variation did you tell me to study?
novel | My novel is about a lighthouse keeper who forges weather reports.
What is my novel about? | move the storm to chapter three | Where should the storm go in the novel?
dog | Our dog Bramble eats socks and was at the vet twice in May.
What does Bramble eat? | a basket muzzle | What did you suggest against it?
coffee | My grinder is a hand grinder with 38 mm burrs that my sister gave me.
Who gave me the grinder? | 18 clicks | How many clicks should I set the grinder to?
insurance | I cancelled the bicycle insurance after the theft in Malmo.
Where was the theft? | within fourteen days | By when should I report the theft?
swimming | I swim 1,200 metres on Tuesdays and my shoulder clicks.
How far do I swim? | bilateral breathing | What kind of breathing did you suggest?
camera | I bought a used medium format camera whose shutter sticks in the cold.
What is wrong with the camera? | lighter fluid on a brush | What should I clean the shutter with?
choir | I sing second bass and we rehearse Rautavaara until Easter.
What do we rehearse in the choir? | humming on thirds | Which exercise did you give me for the voice?
moving | The piano has to go up to the fourth floor through the window.
Which floor does the piano have to go to? | a rented crane | What did you recommend to lift it?
"""
"""Dialogues of a person and an assistant, two lines each: a topic and the person's statement; then a question about it,
a long answer of the assistant, and a question about that answer."""
