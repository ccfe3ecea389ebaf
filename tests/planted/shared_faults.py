"""What both programs may do wrong: of states, secrets, output, signals and numbers."""

from __future__ import annotations

from planted.fault import Fault

SHARED_FAULTS = (
    Fault(
        "somebody else's state is written over",
        "shared:state/store.py",
        "return self.storage.exchange(self.path, seen, state_text(value, mark).encode())",
        "return self.storage.replace(self.path, state_text(value, mark).encode()) or True",
        ("tests/faults/rivals/test_rivals.py",),
    ),
    Fault(
        "secrets are shown in logs",
        "shared:errors.py",
        "        text = text.replace(secret, MASK)\n",
        "        pass\n",
        ("tests/shared/program/test_errors_and_output.py",),
    ),
    Fault(
        "what the JVM prints goes to standard output",
        "shared:core/stdout.py",
        "    os.dup2(2, 1)\n",
        "",
        ("tests/shared/program",),
    ),
    Fault(
        "a signal is noted and the run continues to success",
        "shared:core/signals.py",
        "            if not self.too_late:\n                self._stop(Stopped(number))\n          "
        "  self._say",
        "            self._say",
        ("tests/shared/core/test_signals.py", "tests/shared/program/test_frame.py"),
    ),
    Fault(
        "numbers of a state become floats",
        "shared:core/exact_json.py",
        "        return self.text\n",
        "        return super().__repr__()\n",
        ("tests/tap/extract/test_exact_states.py", "tests/shared/state/test_exact_states.py"),
    ),
    Fault(
        "a moment's zone is dropped",
        "shared:core/key_value.py",
        "        moment = _to_utc(moment, zone)\n",
        "        pass\n",
        ("tests/shared/core/test_key_value.py",),
    ),
)
