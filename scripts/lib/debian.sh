# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# debian.sh - fetch Debian packages without touching the system's package state.
#
# Theory of operation
#   apt gets its own lists, cache, sources and dpkg status below one directory. The sources are
#   the entries of this machine's configuration that serve Debian 12, plus one for the backports
#   suite made from the same entry, so that mirrors, keyrings and proxies are those of the machine.
#   Source this file; it needs bash.

DEBIAN_SUITE=bookworm
debian_dir=

# Prints the deb822 paragraphs of FILE that serve the suite (main component), comments removed.
# With a second argument the paragraph's suites are replaced by it.
debian_paragraphs() {
	grep -v '^#' "$1" | awk -v suite="$DEBIAN_SUITE" -v other="${2:-}" '
		BEGIN { RS = ""; FS = "\n" }
		function value(name,    i) {
			for (i = 1; i <= NF; i++)
				if (tolower($i) ~ "^" name ":")
					return substr($i, length(name) + 2) " "
			return ""
		}
		{
			suites = value("suites")
			if (tolower(value("enabled")) ~ /no|false/ || value("types") !~ / deb /)
				next
			if (value("components") !~ / main / || suites !~ (" " suite "[ -]"))
				next
			if (other != "" && suites !~ (" " suite " "))
				next
			for (i = 1; i <= NF; i++) {
				if (tolower($i) ~ /^types:/)
					print "Types: deb"
				else if (other != "" && tolower($i) ~ /^suites:/)
					print "Suites: " other
				else
					print $i
			}
			print ""
		}'
}

# The same for the one-line format.
debian_lines() {
	local line='^[[:space:]]*deb[[:space:]]+(\[[^]]*\][[:space:]]*)?[^[:space:]]+[[:space:]]+'
	if [ -n "${2:-}" ]; then
		sed -nE "s/($line)$DEBIAN_SUITE([[:space:]].*\\bmain\\b)/\\1$2\\3/p" "$1"
	else
		grep -E "${line}${DEBIAN_SUITE}[-a-z]*[[:space:]](.*[[:space:]])?main\\b" "$1" || true
	fi
}

debian_write_sources() {
	local parts=$1 file base
	local backports=$DEBIAN_SUITE-backports

	mkdir -p "$parts"
	rm -f "$parts"/*
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
		/etc/apt/sources.list.d/*.sources; do
		[ -s "$file" ] || continue
		base=${file##*/}
		case $base in
		*.sources)
			debian_paragraphs "$file" >"$parts/$base"
			debian_paragraphs "$file" "$backports" >"$parts/backports-$base"
			;;
		*)
			debian_lines "$file" >"$parts/${base%.list}.list"
			debian_lines "$file" "$backports" >"$parts/backports-${base%.list}.list"
			;;
		esac
	done
	find "$parts" -type f -size 0 -delete
	if [ -z "$(ls "$parts")" ]; then
		echo "no package source of this machine serves '$DEBIAN_SUITE' (Debian 12)" >&2
		return 1
	fi
}

# debian_open DIR [PACKAGE-REGEX]: make or reuse the private apt directory. Packages that match
# the expression count as not installed, so that they are fetched even if the system has them.
debian_open() {
	debian_dir=$1
	command -v apt-get >/dev/null || {
		echo "apt-get not found: Debian 12 packages can only be fetched on a Debian system" >&2
		return 1
	}
	mkdir -p "$debian_dir"/{lists/partial,cache/archives/partial,etc}
	debian_write_sources "$debian_dir/sources" || return 1
	# Without dependencies: apt must not mind that what it sees installed needs a hidden package.
	awk -v hide="${2:-^$}" 'BEGIN { RS = ""; ORS = "\n\n" }
		{ gsub(/\n(Pre-)?Depends: [^\n]*/, "") } $2 !~ hide' \
		/var/lib/dpkg/status >"$debian_dir/status"
}

debian_apt() {
	local tool=$1
	shift
	LC_ALL=C DEBIAN_FRONTEND=noninteractive "$tool" -q \
		-o Dir::State::lists="$debian_dir/lists" -o Dir::State::status="$debian_dir/status" \
		-o Dir::State::extended_states="$debian_dir/extended_states" \
		-o Dir::Cache="$debian_dir/cache" -o Dir::Cache::archives=archives/ \
		-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$debian_dir/sources" \
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts="$debian_dir/etc" \
		-o APT::Default-Release="" -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
		-o Acquire::Retries=3 -o Acquire::Languages=none -o APT::Update::Post-Invoke="" \
		-o APT::Update::Post-Invoke-Success::="" -o DPkg::Pre-Install-Pkgs::="" "$@"
}

# Fetches the lists. Not fatal by itself (a third party's source may have no backports suite):
# what is missing afterwards is named by debian_version, with this log.
debian_update() {
	debian_apt apt-get update >"$debian_dir/update.log" 2>&1 || true
}

# debian_version PACKAGE PREFIX: the newest version of PACKAGE that begins with PREFIX.
debian_version() {
	local version
	version=$(debian_apt apt-cache madison "$1" 2>/dev/null |
		awk -F ' *[|] *' -v prefix="$2" 'index($2, prefix) == 1 { print $2; exit }')
	if [ -z "$version" ]; then
		echo "no version '$2*' of package $1 in the package sources of this machine" >&2
		sed -n 's/^[EW]: /  apt: /p' "$debian_dir/update.log" 2>/dev/null | head -n 5 >&2
		return 1
	fi
	echo "$version"
}

# debian_unpack ROOT APT-OPTION... PACKAGE[=VERSION]...: unpack the packages, and those that they
# need and this machine lacks, below ROOT. Nothing is installed.
debian_unpack() {
	local root=$1 deb
	shift
	rm -f "$debian_dir"/cache/archives/*.deb
	if ! debian_apt apt-get install -y --no-install-recommends --download-only \
		--allow-downgrades "$@" >"$debian_dir/download.log" 2>&1; then
		tail -n 15 "$debian_dir/download.log" >&2
		return 1
	fi
	mkdir -p "$root"
	for deb in "$debian_dir"/cache/archives/*.deb; do
		dpkg-deb -x "$deb" "$root"
	done
	rm -f "$debian_dir"/cache/archives/*.deb
}

# debian_unpack_only ROOT PACKAGE...: the same without the packages that they need.
debian_unpack_only() {
	local root=$1 deb download
	shift
	download=$(mktemp -d "$debian_dir/download.XXXXXX")
	if ! (cd "$download" && debian_apt apt-get download "$@") \
		>"$debian_dir/download.log" 2>&1; then
		tail -n 15 "$debian_dir/download.log" >&2
		rm -rf "$download"
		return 1
	fi
	mkdir -p "$root"
	for deb in "$download"/*.deb; do
		dpkg-deb -x "$deb" "$root"
	done
	rm -rf "$download"
}
