"""Layers of values: their precedence, and the source of each value."""

from __future__ import annotations

import pytest

from hermes.errors import SettingsError
from hermes.settings.compound_kinds import Map, optional
from hermes.settings.kinds import Boolean, Integer, Text
from hermes.settings.layers import Given, Layer, environment, try_resolve
from hermes.settings.setting import Setting, collect
from tests.settings.resolving import resolve

NAME = Setting("name", Text(), "nobody", "A name.", env="X_NAME")
PIN = Setting("pin", Boolean(), False, "A switch.", also=("oldPin", "olderPin"))
TOKENS = Setting("tokens", optional(Integer(1)), 500, "A budget, or none.")
ALIASES = Setting("aliases", Map(Text()), {}, "Other names.")
TABLE = (NAME, PIN, TOKENS, ALIASES)


def host(**values: object) -> Layer:
    return Layer.of("host block", values, "x.json, hosts.a")


def root(**values: object) -> Layer:
    return Layer.of("root", values, "x.json")


@pytest.mark.parametrize(
    ("layers", "env", "value", "origin", "where"),
    [
        ([host(name="a"), root(name="b")], {"X_NAME": "c"}, "a", "host block", "x.json, hosts.a"),
        ([host(), root(name="b")], {"X_NAME": "c"}, "b", "root", "x.json"),
        ([host(name=None), root(name="b")], {}, "b", "root", "x.json"),
        ([host(), root()], {"X_NAME": "c"}, "c", "environment", "environment variable X_NAME"),
        ([host(), root()], {"X_NAME": ""}, "nobody", "default", "default"),
        ([host(name=""), root(name="b")], {}, "", "host block", "x.json, hosts.a"),
        ([], {}, "nobody", "default", "default"),
    ],
)
def test_first_layer_with_a_value_wins_and_is_named(
    layers: list[Layer], env: dict[str, str], value: str, origin: str, where: str
) -> None:
    settings = resolve(TABLE, [*layers, environment(TABLE, env)])
    assert (settings.get(NAME), settings.origin(NAME), settings.where(NAME)) == (value, origin, where)


def test_null_is_a_value_only_where_none_is_allowed() -> None:
    layers = [host(tokens=None, pin=None), root(tokens=800, pin=True)]
    settings = resolve(TABLE, layers)
    assert (settings.get(TOKENS), settings.origin(TOKENS)) == (None, "host block")
    assert (settings.get(PIN), settings.origin(PIN)) == (True, "root")


def test_a_map_is_replaced_as_a_whole() -> None:
    layers = [host(aliases={}), root(aliases={"1": "alice"})]
    assert resolve(TABLE, layers).get(ALIASES) == {}
    assert resolve(TABLE, layers[1:]).get(ALIASES) == {"1": "alice"}


@pytest.mark.parametrize(
    ("layers", "value"),
    [
        ([root(oldPin=True)], True),
        ([root(olderPin=True, oldPin=False)], False),
        ([root(oldPin=True, pin=False)], False),
        ([host(oldPin=True), root(pin=False)], True),
    ],
)
def test_an_older_key_is_read_where_its_layer_has_no_other(layers: list[Layer], value: bool) -> None:
    assert resolve(TABLE, layers).get(PIN) is value


def test_a_wrong_value_names_place_key_value_and_what_is_allowed() -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(TABLE, [host(oldPin="maybe")])
    assert caught.value.message == "x.json, hosts.a: oldPin is 'maybe', but takes true or false"
    with pytest.raises(SettingsError, match=r"^x\.json: aliases\.7 is \[1\], but takes text$"):
        resolve(TABLE, [root(aliases={"7": [1]})])


def test_a_wrong_value_that_another_layer_hides_stops_nobody() -> None:
    assert resolve(TABLE, [host(pin=True), root(pin="maybe")]).get(PIN) is True


def test_valid_settings_are_available_beside_wrong_ones() -> None:
    settings, problems = try_resolve(TABLE, [root(name="a", pin="maybe", tokens=0)])
    assert (settings.get(NAME), settings.get(PIN), settings.get(TOKENS)) == ("a", False, 500)
    assert [problem.message.partition(" is ")[0] for problem in problems] == ["x.json: pin", "x.json: tokens"]
    with pytest.raises(SettingsError, match=r"\(and 1 more: `hermes doctor` lists them\)"):
        resolve(TABLE, [root(pin="maybe", tokens=0)])


def test_a_value_may_stand_on_a_line_of_its_own() -> None:
    layer = Layer("file", {"name": Given("name", "a", "x.yaml, line 3")})
    assert resolve(TABLE, [layer]).where(NAME) == "x.yaml, line 3"


def test_a_table_is_collected_from_a_module_or_a_class_in_its_order() -> None:
    class Rows:
        B = PIN
        other = 5
        A = NAME

    assert collect(vars(Rows)) == (PIN, NAME)
