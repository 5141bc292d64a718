# What several scripts here do: say something, give up, install Debian packages. Sourced, not run.

say() { printf '%s: %s\n' "scripts/${0##*/}" "$*"; }
die() {
    say "$*" >&2
    exit 1
}

as_root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "needs root for: $* (and there is no sudo)"
    fi
}

# install_packages REASON PACKAGE...
install_packages() {
    local reason=$1
    shift
    command -v apt-get >/dev/null || die "$reason. There is no apt-get here: install the equivalent of: $*"
    say "$reason: installing $*"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null ||
        die "could not install $*"
}
