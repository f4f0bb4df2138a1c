#!/bin/sh
# Makes .venv fit requirements.lock and sees to it that a Java 17+ exists, on any machine that has
# Python 3.11+. Called by the Makefile; does nothing when everything is there already.
#
# It installs Debian packages only as root on Debian or Ubuntu, and says so when it does. Elsewhere
# it stops with the one command to type.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
STAMP=.venv/.stamp

say() { echo "bootstrap: $*" >&2; }
stop() { say "$*"; exit 1; }

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_install() { # why, package...
    why=$1; shift
    can_install || stop "$why; type: sudo apt-get install $*"
    say "$why: apt-get install $* (a minute)"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends "$@"; } >.bootstrap.log 2>&1 ||
        { tail -n 20 .bootstrap.log >&2; rm -f .bootstrap.log; stop "apt-get install $* failed"; }
    rm -f .bootstrap.log
}

java_major() { # path of a java: its major version, 0 when it does not run
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1 | grep . || echo 0
}

has_java() {
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
        # Spark prefers JAVA_HOME to PATH, so a wrong one there is wrong altogether.
        [ "$(java_major "$JAVA_HOME/bin/java")" -ge 17 ] ||
            stop "Spark needs Java 17 or newer, JAVA_HOME=$JAVA_HOME is older; unset it or point it elsewhere"
        return 0
    fi
    command -v java >/dev/null 2>&1 && [ "$(java_major "$(command -v java)")" -ge 17 ]
}

is_python_new() {
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

has_java || apt_install "Spark needs Java 17 or newer and there is none" default-jre-headless
has_java || stop "there is still no Java 17; install one and set JAVA_HOME"

# The virtual environment is re-made whenever what goes into it or the interpreter changed; the
# settings of tools, at the end of pyproject.toml, do not.
is_python_new || stop "Python 3.11 or newer is needed; name one with PYTHON=..."
wanted=$({
    cat requirements.lock metadata/bookkeeper_metadata/version.py
    sed '/^\[tool\.ruff/,$d' pyproject.toml
    "$PYTHON" --version
} | cksum)
[ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$wanted" ] && exit 0

"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    apt_install "$PYTHON cannot make virtual environments" python3-venv
if [ -f "$STAMP" ]; then clear=--clear; else clear=; fi
say "making .venv with the versions of constraints.txt (a minute or two)"
"$PYTHON" -m venv $clear .venv

# Whatever comes from the index is checked against requirements.lock: a file of another hash is refused.
pip_install() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install --quiet --progress-bar off "$@" ||
        stop "pip could not install; see above, then run make again"
}

# First a pip that is the same under every Python, and what builds PySpark, which has no wheel: for
# a build in an environment of its own pip would fetch that without hashes.
sed -n -e '/^pip==/,/[^\]$/p' -e '/^setuptools==/,/[^\]$/p' requirements.lock |
    pip_install --require-hashes --requirement /dev/stdin
pip_install --require-hashes --no-build-isolation --requirement requirements.lock
pip_install --no-deps --no-build-isolation --editable .
echo "$wanted" >"$STAMP"
