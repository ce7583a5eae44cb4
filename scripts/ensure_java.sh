#!/bin/sh
# Prints the home of a Java that runs Spark and Kafka, on stdout, nothing else. Where there is none,
# installs one with the system's package manager if that can be done without a question, else says
# in one line how to get one and exits 1.
set -u

# Below 17 neither Kafka 4 nor Spark 4 starts. From 23 on Subject.getSubject throws, and the login of
# the Hadoop client inside Spark 4.0 calls it.
oldest=17
newest=22

say() { echo "java: $*" >&2; }

# Prints "<major> <home>" of a java executable, or fails.
describe() {
    properties=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    major=$(printf '%s\n' "$properties" | sed -n 's/^ *java\.specification\.version = //p')
    home=$(printf '%s\n' "$properties" | sed -n 's/^ *java\.home = //p')
    case $major in '' | *[!0-9]*) major=1 ;; esac
    [ -n "$home" ] && echo "$major $home"
}

unsuitable=""

try() {
    found=$(describe "$1") || return 1
    if [ "${found%% *}" -ge $oldest ] && [ "${found%% *}" -le $newest ]; then
        echo "${found#* }"
        return 0
    fi
    unsuitable="$unsuitable ${found%% *}"
    return 1
}

find_java() {
    unsuitable=""
    if [ -n "${JAVA_HOME:-}" ]; then try "$JAVA_HOME/bin/java" && return 0; fi
    if command -v java >/dev/null 2>&1; then try java && return 0; fi
    for java in /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java \
        /usr/local/opt/openjdk*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        if [ -x "$java" ]; then try "$java" && return 0; fi
    done
    return 1
}

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_be_root() { [ "$(id -u)" -eq 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }

# Each prints what it will run before it runs it; package managers talk on stderr.
install_one_of() {
    installer=$1
    shift
    for package in "$@"; do
        say "installing $package"
        # shellcheck disable=SC2086  # the installer is a command with its flags
        $installer "$package" >&2 </dev/null && return 0
    done
    return 1
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$1"
}

install_java() {
    if have apt-get && may_be_root; then
        as_root apt-get update -qq >&2 </dev/null
        install_one_of apt_install openjdk-17-jre-headless openjdk-21-jre-headless
    elif have dnf && may_be_root; then
        install_one_of 'as_root dnf install -y' java-17-openjdk-headless java-21-openjdk-headless
    elif have apk && may_be_root; then
        install_one_of 'as_root apk add' openjdk17-jre-headless openjdk21-jre-headless
    elif have brew; then
        install_one_of 'brew install' openjdk@17 openjdk@21
    else
        return 1
    fi
}

how_to() {
    if have apt-get; then echo "sudo apt-get install openjdk-17-jre-headless"
    elif have dnf; then echo "sudo dnf install java-17-openjdk-headless"
    elif have apk; then echo "apk add openjdk17-jre-headless"
    elif have brew; then echo "brew install openjdk@17"
    else echo "install OpenJDK 17 or 21 and set JAVA_HOME to it"
    fi
}

find_java && exit 0
why="none found"
[ -z "$unsuitable" ] || why="found only version$unsuitable"
say "Spark and Kafka need version $oldest to $newest (17 or 21 is best); $why"
if install_java && find_java; then
    exit 0
fi
say "it has to be installed by hand: $(how_to)"
exit 1
