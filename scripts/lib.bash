# What several scripts here do: say something, give up, install packages. Sourced, not run.

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

# sdk_packages NAME: installs Python's `python_packages` and Node's `node_packages` (which may be empty), two arrays of the
# caller's with pinned versions, into target/NAME, and prints that folder as its last line: venv/ and node_modules/ are in it.
#
# They go into the target folder, not into the repository. May be called again and at the same time by many; only the first call
# takes long. Installs python3-venv, nodejs and npm on a Debian machine that lacks them. Expects to be in the repository's root.
sdk_packages() {
    local folder complete wanted
    mkdir -p "${CARGO_TARGET_DIR:-target}/$1"
    folder=$(cd "${CARGO_TARGET_DIR:-target}/$1" && pwd)
    # Written last, so whoever sees it can use the rest.
    complete=$folder/complete
    # shellcheck disable=SC2154 # The caller has them.
    wanted="${python_packages[*]} ${node_packages[*]}"

    if ! sdk_packages_complete; then
        exec 7>"$folder/lock"
        flock 7
        # Somebody else may have done it while we waited.
        if ! sdk_packages_complete; then sdk_packages_install 7>&- >&2; fi
    fi
    printf '%s\n' "$folder"
}

sdk_packages_complete() { [[ -f $complete && $(<"$complete") == "$wanted" ]]; }

sdk_packages_install() {
    local missing=()
    [[ ${#python_packages[@]} -eq 0 ]] || python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    if [[ ${#node_packages[@]} -gt 0 ]]; then
        command -v node >/dev/null || missing+=(nodejs)
        command -v npm >/dev/null || missing+=(npm)
    fi
    if [[ ${#missing[@]} -gt 0 ]]; then install_packages "no Python or Node to run the packages with" "${missing[@]}"; fi

    say "installing $wanted"
    rm -rf "$complete" "$folder/venv" "$folder/node_modules"
    if [[ ${#python_packages[@]} -gt 0 ]]; then
        python3 -m venv "$folder/venv"
        "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}"
    fi
    if [[ ${#node_packages[@]} -gt 0 ]]; then
        npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix "$folder" "${node_packages[@]}"
    fi
    printf '%s\n' "$wanted" >"$complete.new"
    mv "$complete.new" "$complete"
}
