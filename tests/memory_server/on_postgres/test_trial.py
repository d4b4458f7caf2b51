import importlib, os

for _n in os.environ["TRIAL"].split(","):
    _m = importlib.import_module(f"tests.memory_server.test_{_n}")
    globals().update(
        {
            k: v
            for k, v in vars(_m).items()
            if k.startswith("test_")
            or hasattr(v, "_fixture_function_marker")
            or type(v).__name__ == "FixtureFunctionDefinition"
        }
    )
