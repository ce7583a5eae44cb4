#!/bin/sh
# ensure_system.sh NEED [ALSO...], each `venv` or `java`: installs NEED with the system's package
# manager where it is missing and that takes no question. Else one line says what to ask for, with
# all of ALSO that is missing too, and it exits 1. PYTHON names the Python that venv is needed of,
# VENV the environment to be made.
set -u
cd "$(dirname "$0")/.." || exit 1
environment=${VENV:-.venv}

have() { command -v "$1" >/dev/null 2>&1; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }

manager=""
for candidate in apt-get dnf apk brew; do
    if have $candidate; then
        manager=$candidate
        break
    fi
done

may_install() {
    case $manager in
        '') return 1 ;;
        brew) return 0 ;;
    esac
    [ "$(id -u)" -eq 0 ] || { have sudo && sudo -n true 2>/dev/null; }
}

is_there() {
    case $1 in
        venv) [ -x "$environment/bin/uv" ] || "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
        java) sh scripts/find_java.sh >/dev/null 2>&1 ;;
    esac
}

# Each package that would do, the best one first.
packages_for() {
    case $1.$manager in
        venv.apt-get)
            # Only of Debian's own: python3 comes without venv there, python3.12 without python3.12-venv.
            case $(command -v "$python") in /usr/bin/*) echo "${python##*/}-venv" ;; esac ;;
        java.apt-get)
            # shellcheck disable=SC1091
            case $(. /etc/os-release && echo "${ID:-}${VERSION_ID:-}") in
                debian11 | debian12 | ubuntu2[0-3].*) echo openjdk-17-jre-headless openjdk-21-jre-headless ;;
                *) echo openjdk-21-jre-headless openjdk-17-jre-headless ;;
            esac ;;
        java.dnf) echo java-17-openjdk-headless java-21-openjdk-headless ;;
        java.apk) echo openjdk17-jre-headless openjdk21-jre-headless ;;
        java.brew) echo openjdk@17 openjdk@21 ;;
    esac
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1"
}

install() {
    case $manager in
        # The lists may be empty or too old.
        apt-get) apt_install "$1" 2>/dev/null || { as_root apt-get update -qq && apt_install "$1"; } ;;
        dnf) as_root dnf install -y "$1" ;;
        apk) as_root apk add "$1" ;;
        brew) brew install "$1" ;;
    esac
}

python=""
if [ "$1" = venv ] && [ ! -x "$environment/bin/uv" ]; then
    python=$(sh scripts/find_python.sh ${PYTHON:+"$PYTHON"}) || exit 1
fi

is_there "$1" && exit 0
why="which this user may not install"
if may_install; then
    why="which could not be installed"
    for package in $(packages_for "$1"); do
        echo "installing $package" >&2
        install "$package" >/dev/null </dev/null && is_there "$1" && exit 0
    done
fi

names="" packages=""
for need in "$@"; do
    is_there "$need" && continue
    case $need in
        venv) names="$names and venv for $python" ;;
        java) names="$names and Java 17 or 21" ;;
    esac
    # shellcheck disable=SC2046
    set -- $(packages_for "$need")
    packages="$packages${1:+ $1}"
done
command="$manager install"
[ "$manager" != apk ] || command="apk add"
[ "$manager" = brew ] || command="sudo $command"
if [ -z "$packages" ]; then
    echo "sparklag needs ${names# and }: install it, then try again" >&2
else
    echo "sparklag needs ${names# and }, $why: $command$packages" >&2
fi
exit 1
