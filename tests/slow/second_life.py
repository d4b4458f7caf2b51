"""Another life in forty messages, with twenty questions, held out from tuning."""

from __future__ import annotations

from tests.slow.life import Asked

CONVERSATIONS = (
    (
        "Good morning. My name is Desmond Okoro, but everyone calls me Des.",
        "I retired from the post office two years ago.",
        "These days I look after the bees on my allotment; I have five hives.",
        "My wife Carol passed away in 2019.",
        "Anyway, it is a cold morning here in Leeds.",
    ),
    (
        "My daughter Yemi is a vet, and she has a practice in York.",
        "Her son Tobi turned twelve last week.",
        "Tobi is mad about chess.",
        "I gave him a wooden board that I carved myself.",
        "I carve most evenings, mainly lime wood.",
    ),
    (
        "I have type 2 diabetes, so no sugar for me.",
        "It is a bit silly: a beekeeper who must not eat honey.",
        "My doctor is Dr Patel, at the surgery on Chapel Street.",
        "I take metformin twice a day.",
        "The weather has turned, finally some sun.",
    ),
    (
        "My brother Emeka still lives in Lagos and runs a printing shop.",
        "We talk on the phone every Sunday after lunch.",
        "He is three years older than me.",
        "I support Leeds United, for my sins.",
        "They lost again yesterday.",
    ),
    (
        "I got a dog! A greyhound from the rescue centre, and I named her Biscuit.",
        "She sleeps on the sofa all day.",
        "We walk to Roundhay Park each morning at half past six.",
        "Could you suggest a name for my new hive? Oh, never mind, Yemi picked one: Balmoral.",
        "That makes six hives now.",
    ),
    (
        "I have news: I am moving in with Yemi, so from now on I live in York.",
        "My flat was too big for one man and a dog.",
        "The allotment is gone, but the bees came along; they stand in her orchard.",
        "Tobi helped me carry the boxes.",
        "I found an old photograph of Carol on the pier at Whitby.",
    ),
    (
        "Dr Patel was lovely, but now I am with Dr Hughes, who is much nearer.",
        "She took me off metformin; I take gliclazide instead.",
        "Tobi has given up chess, he only wants to play the drums now.",
        "The whole house shakes.",
        "I am learning to bake bread without sugar.",
    ),
    (
        "Emeka is coming to visit at Easter, for the first time in nine years.",
        "We will take him to see the railway museum.",
        "I joined a choir; I sing bass, on Tuesdays.",
        "My knees hurt when it rains, which is often.",
        "That is all from me for today.",
    ),
)

QUESTIONS = (
    Asked("What do my friends call me?", ("des",)),
    Asked("Which city do I live in at the moment?", ("york",), "leeds"),
    Asked("Where did I work before I retired?", ("post office",)),
    Asked("What was my wife called?", ("carol",)),
    Asked("What is my daughter's profession?", ("vet",)),
    Asked("What is my grandson's name?", ("tobi",)),
    Asked("What is Tobi's hobby now?", ("drum",), "chess"),
    Asked("How many bee hives do I have now?", ("six", "6"), "five"),
    Asked("Which illness do I have?", ("diabet",)),
    Asked("Which medicine do I take now?", ("gliclazide",), "metformin"),
    Asked("Who is my doctor now?", ("hughes",), "patel"),
    Asked("What is my dog's name?", ("biscuit",)),
    Asked("Which breed is my dog?", ("greyhound",)),
    Asked("In which city does my brother live?", ("lagos",)),
    Asked("Which football club do I support?", ("leeds united",)),
    Asked("When does Emeka visit us?", ("easter",)),
    Asked("What is my shoe size?", None),
    Asked("Which school does Tobi go to?", None),
    Asked("What colour are my eyes?", None),
    Asked("Which car do I drive?", None),
)
