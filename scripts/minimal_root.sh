# shellcheck shell=bash
# Sourced by compose_engine.sh and fresh_test.sh, which define fail: a minimal Debian.

ensure_mmdebstrap() {
    ! command -v mmdebstrap >/dev/null || return 0
    command -v apt-get >/dev/null || fail "needs mmdebstrap: install it, then try again"
    apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends mmdebstrap >&2 ||
        fail "mmdebstrap cannot be installed"
}

# minimal_root SUITE PACKAGES TARBALL [HOOK...]: makes the tarball if it is not there. It has this
# machine's certificate authorities: what the machine reaches is reached from inside.
minimal_root() {
    local suite=$1 packages=$2 target=$3 hook hooks=()
    shift 3
    [ ! -s "$target" ] || return 0
    for hook in "$@"; do hooks+=("--customize-hook=$hook"); done
    # shellcheck disable=SC2016 # $1 is for the hooks: the root
    nice mmdebstrap --format=tar --variant=minbase --include="$packages" \
        --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
        --customize-hook='mkdir -p "$1/usr/local/share/ca-certificates"' \
        --customize-hook='cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/" 2>/dev/null || true' \
        --customize-hook='chroot "$1" update-ca-certificates' \
        --customize-hook='printf "Acquire::Check-Valid-Until \"false\";\nAcquire::Check-Date \"false\";\n" >"$1/etc/apt/apt.conf.d/99frozen-mirror"' \
        "${hooks[@]}" "$suite" "$target.part" && mv "$target.part" "$target"
}
