#!/bin/sh
# Prints the home of a Java that runs Spark and Kafka. Exits 1 with one line where there is none.
set -u

# Below 17 neither Kafka 4 nor Spark 4 starts. From 23 on Subject.getSubject throws, and the login of
# the Hadoop client inside Spark 4.0 calls it.
oldest=17
newest=22

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
    version_home=$(describe "$1") || return 1
    if [ "${version_home%% *}" -ge $oldest ] && [ "${version_home%% *}" -le $newest ]; then
        echo "${version_home#* }"
        exit 0
    fi
    unsuitable="$unsuitable ${version_home%% *}"
}

[ -z "${JAVA_HOME:-}" ] || try "$JAVA_HOME/bin/java"
if command -v java >/dev/null 2>&1; then try java; fi
for java in /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java \
    /usr/local/opt/openjdk*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
    [ ! -x "$java" ] || try "$java"
done
why="none found"
[ -z "$unsuitable" ] || why="found only version$unsuitable"
echo "Spark and Kafka need Java $oldest to $newest (17 or 21 is best); $why" >&2
exit 1
