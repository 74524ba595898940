# Sourced by demo, test and check, with $root set to the project's folder.
#
#     prepare_environment        what plait needs to run
#     prepare_environment dev    and what its developers need
#
# makes $root/.venv if it is missing, installs into it if pyproject.toml has changed since the last
# time, and sets $python to the interpreter in there. Otherwise it costs a few milliseconds.
#
# What is installed is what locks/ says, by version and hash (scripts/lock makes that). Where
# PIP_FIND_LINKS or PIP_NO_INDEX names packages of your own, others will do that are within the bounds of
# pyproject.toml; PLAIT_UNLOCKED=1 takes these anywhere.

give_up() {
    printf '%s\n' "$@" >&2
    exit 3
}

# Prints the first interpreter that is new enough and can make an environment.
find_python() {
    too_old="" without_venv=""
    for candidate in "${PLAIT_PYTHON:-}" \
        python3.11 python3.12 python3.13 python3.14 python3 python; do
        [ -n "$candidate" ] || continue
        # A name may be there and still not run (pyenv leaves such behind): ask it.
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
            continue
        if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            too_old="$candidate is Python $version"
        elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            without_venv=$candidate
        else
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    if [ -n "$without_venv" ]; then
        give_up "$without_venv has no venv module, so plait cannot make itself an environment." \
            "On Debian and Ubuntu: apt install $without_venv-venv"
    fi
    give_up "plait needs Python 3.11 or newer; none was found on PATH${too_old:+ ($too_old)}." \
        "Install one, or name it: PLAIT_PYTHON=/path/to/python3.12 $0"
}

run_pip() {
    (cd "$root" && "$python" -m pip install --quiet --no-input --disable-pip-version-check "$@")
}

install_unlocked() {
    run_pip --editable ".${1:+[$1]}"
}

# What builds packages is installed first, so that pip does not fetch another one for that.
install_locked() {
    lock=$root/locks/${1:-plait}.txt
    if [ -n "${PLAIT_UNLOCKED:-}" ] || [ ! -f "$lock" ]; then
        install_unlocked "$1"
        return
    fi
    run_pip --require-hashes --requirement "$root/locks/build.txt" &&
        run_pip --require-hashes --no-build-isolation --requirement "$lock" &&
        run_pip --no-deps --no-build-isolation --editable .
}

give_up_installing() {
    grep '^ *ERROR' "$1" | head -n 3 >&2
    give_up "Could not install what plait needs; all of pip's output is in $1." \
        "pip has to reach a package index: set PIP_INDEX_URL or HTTPS_PROXY where" \
        "this machine reaches one only through another."
}

prepare_environment() {
    extra=${1:-}
    venv=$root/.venv
    python=$venv/bin/python
    # The folder is part of the stamp: an environment that was copied along points to the old one.
    wanted="$(cat "$root/pyproject.toml" "$root/locks/"*.txt 2>/dev/null | cksum) $root"
    stamp=$venv/plait-installed${extra:+-$extra}

    if ! "$python" -c '' 2>/dev/null; then
        base=$(find_python) || exit $?
        echo "Making an environment in .venv with $("$base" --version) ..." >&2
        "$base" -m venv --clear "$venv" || give_up "Could not make $venv, see above."
    fi
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "Installing plait${extra:+ and its $extra tools} into .venv, once ..." >&2
        log=$venv/install.log
        if ! install_locked "$extra" >"$log" 2>&1; then
            if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
                give_up "A package is not the one that locks/ names: see $log." \
                    "If it comes from a place that you trust, PLAIT_UNLOCKED=1 takes it."
            elif [ -n "${PIP_FIND_LINKS:-}${PIP_NO_INDEX:-}" ] && [ -d "$root/locks" ]; then
                echo "Not all versions of locks/ are there: taking others within bounds." >&2
                install_unlocked "$extra" >"$log" 2>&1 || give_up_installing "$log"
            else
                give_up_installing "$log"
            fi
        fi
        printf '%s\n' "$wanted" >"$stamp"
        # The developers' tools come on top of what plait itself needs.
        [ -z "$extra" ] || printf '%s\n' "$wanted" >"$venv/plait-installed"
    fi
}
