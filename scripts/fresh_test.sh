#!/usr/bin/env bash
# `make demo` and `make test` on a minimal Debian: python3, git, make, certificates and sudo, nothing
# else. Each run has a root of its own; one line of result each.
#   fresh_test.sh [bookworm|trixie] [root|sudoer|user] [demo|test]    any of them; all by default
#   fresh_test.sh forky root check    only if named: the next Debian has Python 3.14
# A sudoer may use sudo without a password; a user may not, and must be told in one line what to ask
# for. Base tarballs are kept in $cache; remove it to have them made anew.
set -uom pipefail # m: a command in the background keeps its SIGINT
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sparklag/fresh-test
bundle=/etc/ssl/certs/ca-certificates.crt
deadline_s=7200

note() { printf 'fresh-test: %s\n' "$*" >&2; }
fail() {
    note "$*"
    exit 1
}
# shellcheck source=scripts/minimal_root.sh
. scripts/minimal_root.sh

suites=() identities=() targets=()
for word in "$@"; do
    case $word in
    bookworm | trixie | forky) suites+=("$word") ;;
    root | sudoer | user) identities+=("$word") ;;
    demo | test | check) targets+=("$word") ;;
    *) fail "not one of bookworm, trixie, forky, root, sudoer, user, demo, test, check: $word" ;;
    esac
done
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)
[ ${#identities[@]} -gt 0 ] || identities=(user root sudoer)
[ ${#targets[@]} -gt 0 ] || targets=(demo test)

[ "$(id -u)" -eq 0 ] || fail "needs root, to make a root and to change into it: sudo make fresh-test"
ensure_mmdebstrap

running="" root=""
clean_up() {
    local status=$?
    trap - EXIT INT TERM
    # Processes and mounts live in namespaces that end with this one process.
    if [ -n "$running" ]; then
        kill -KILL "$running" 2>/dev/null
        wait "$running" 2>/dev/null
    fi
    [ -z "$root" ] || rm -rf --one-file-system "$root"
    exit $status
}
trap clean_up EXIT
trap 'exit 130' INT TERM

make_base() {
    [ -s "$cache/$1.tar" ] || note "making a minimal $1 (minutes, once)"
    minimal_root "$1" python3,git,make,ca-certificates,sudo "$cache/$1.tar" >"$cache/$1.log" 2>&1 ||
        fail "mmdebstrap failed (log: $cache/$1.log)"
}

# Sets `root` and `home`.
make_root() {
    local suite=$1 who=$2
    root=$(mktemp -d "$cache/root.XXXXXX")
    chmod 755 "$root"
    tar -xf "$cache/$suite.tar" -C "$root" || fail "$cache/$suite.tar cannot be unpacked"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    home=/root
    if [ "$who" != root ]; then
        home=/home/$who
        chroot "$root" useradd --create-home "$who" || fail "no user $who"
        [ "$who" = user ] || echo "$who ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$who"
    fi
    git clone -q "file://$PWD" "$root$home/sparklag" || fail "git clone failed"
    chroot "$root" chown -R "$who:$who" "$home/sparklag"
}

# As `who` in `root`; the shell stays process 1, which reaps what has lost its parent.
run_inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$1/proc" &&
            mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$1/dev/pts" &&
            mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" || exit 1
        shift
        chroot "$@"
        exit $?' sh "$root" --userspec="$who:$who" --groups= "$root" /usr/bin/env -i \
        HOME="$home" USER="$who" LOGNAME="$who" PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        SSL_CERT_FILE=$bundle PIP_CERT=$bundle NODE_EXTRA_CA_CERTS=$bundle \
        timeout $deadline_s sh -c 'cd && cd sparklag && exec "$@"' sh "$@" >"$log" 2>&1 </dev/null &
    running=$!
    wait "$running"
    local status=$?
    running=""
    return $status
}

try() {
    local suite=$1 who=$2 target=$3 log="$cache/$1-$2-$3.log" began=$SECONDS result=FAILED
    local command=(make "$target")
    [ "$target" != demo ] || command+=('ARGS=--seconds 30')
    if run_inside "${command[@]}"; then
        [ "$who" = user ] || result=passed
    elif [ "$who" = user ]; then
        # One line of ours that names all of it, and make's own that it failed.
        grep -q 'sudo apt-get install python3-venv openjdk-[0-9]*-jre-headless$' "$log" &&
            [ "$(grep -vc '^make' "$log")" -eq 1 ] && result=passed
    fi
    [ $result = passed ] || failed=yes
    printf '%-8s %-6s %-9s %-6s %5d s  %s\n' \
        "$suite" "$who" "make $target" $result $((SECONDS - began)) "$log"
}

mkdir -p "$cache"
failed=""
for suite in "${suites[@]}"; do
    make_base "$suite"
    for who in "${identities[@]}"; do
        make_root "$suite" "$who"
        for target in "${targets[@]}"; do try "$suite" "$who" "$target"; done
        rm -rf --one-file-system "$root"
        root=""
    done
done
[ -z "$failed" ]
