"""The files that people really wrote for this language, and which of them belong together.

They are not ours to copy, so they lie beside the project; tests skip where they are not.
"""

from pathlib import Path
from typing import Final

import pytest

CORPUS: Final = Path(__file__).resolve().parents[2] / "shared" / "scripts-corpus"

needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the corpus is not ours to copy; it lies beside the project only"
)

ANDRE: Final = "AndreSilvs__SESDAD/PuppetMaster"
ANYA: Final = "AnyaAlves__dad2015/SESDAD/PuppetMaster/Scripts"
CANOXA: Final = "canoxa__PubSubRedudant"
MIGUEL: Final = "MiguelPires__PubSub"
PEDRO: Final = "PedroJoaquim__SESDAD/SESDAD/Config"
STRABOX_ROOT: Final = "Strabox__Publish-Subscribe-Broker-Network/SESDAD/PuppetMaster"
STRABOX: Final = f"{STRABOX_ROOT}/ConfigurationFiles"
STRABOX_SCRIPTS: Final = f"{STRABOX_ROOT}/ScriptFiles"
TEACHER: Final = "PedroJoaquim__SESDAD/SESDAD/ScriptsTeacher"

# The pairs of the README, and what is odd about each.
PAIRS: Final = {
    (f"{ANDRE}/Config.txt", f"{ANDRE}/Script.txt"): ["foreign line 1:1", "last broker 9:7"],
    (f"{ANDRE}/Config@32b28ca4.txt", f"{ANDRE}/Script@32b28ca4.txt"): [],
    (f"{ANDRE}/Config@a1125be5.txt", f"{ANDRE}/Script@a1125be5.txt"): [],
    (f"{ANYA}/sesdadrc.txt", f"{ANYA}/sesdadrc.txt"): [
        f"disabled line {line}:1" for line in (43, 44, 45, 46)
    ],
    (f"{CANOXA}/config.txt", f"{CANOXA}/script.txt"): [],
    (f"{CANOXA}/config.txt", f"{CANOXA}/script1.txt"): [],
    (f"{CANOXA}/config2.txt", f"{CANOXA}/script2.txt"): [],
    (f"{MIGUEL}/master.config", f"{MIGUEL}/script.txt"): [],
    (f"{PEDRO}/config.txt", f"{PEDRO}/script.txt"): [],
    (f"{PEDRO}/config@0ed02c12.txt", f"{PEDRO}/script@0ed02c12.txt"): [],
    (f"{PEDRO}/config@36a6c358.txt", f"{PEDRO}/script@36a6c358.txt"): [],
    (f"{STRABOX}/ConfigReplics.txt", f"{STRABOX_SCRIPTS}/Script1.txt"): [],
    (f"{STRABOX}/Configuration2.txt", f"{STRABOX_SCRIPTS}/Script2.txt"): [],
    (f"{STRABOX}/Configuration2@092db4b3.txt", f"{STRABOX_SCRIPTS}/Script1@092db4b3.txt"): [],
    (f"{STRABOX}/ProfessorConfig1.txt", f"{STRABOX_SCRIPTS}/ProfessorScript1.txt"): [],
    (f"{STRABOX}/QuidditchConfig.txt", f"{STRABOX_SCRIPTS}/Quidditch.txt"): [],
    (f"{STRABOX}/QuidditchConfigRep.txt", f"{STRABOX_SCRIPTS}/Quidditch.txt"): [],
    (f"{TEACHER}/T1-config.txt", f"{TEACHER}/T1-commands.txt"): [],
    (f"{TEACHER}/T2-config.txt", f"{TEACHER}/T2-commands.txt"): [],
}
