#!/usr/bin/env python3
"""Write the bill of materials of a build, as SPDX 2.3 in JSON: the libraries that its command, libraries and plug-ins
are linked with or load later, and the Debian packages that these come from, with versions.

usage: tools/sbom.py [BUILD] [-o FILE]

What is read is what was built: the ELF files of BUILD/bin and BUILD/lib. The same build gives the same text; the date
is SOURCE_DATE_EPOCH, or else that of the commit."""
import argparse
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

SOURCE = pathlib.Path(__file__).resolve().parents[1]
SONAME = re.compile(rb"(?<=\0)(lib[A-Za-z0-9_+-]+\.so\.[0-9][0-9.]*|ld-linux[a-z0-9_-]*\.so\.[0-9]+)(?=\0)")


def output_of(*argv, also_if=0):
    """What a program prints; "" where it is not installed, or fails, but for the code `also_if`."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False,
                              env=dict(os.environ, LC_ALL="C", PATH=os.environ.get("PATH", "") + ":/sbin:/usr/sbin"))
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode in (0, also_if) else ""


# ---- what is used


def built_files(build):
    files = [build / "bin" / "tutti", *sorted((build / "lib").rglob("*.so"))]
    missing = [str(path) for path in files[:1] if not path.exists()]
    if missing or len(files) == 1:
        sys.exit(f"sbom: {build}: expected a build with bin/tutti and lib/*.so, got none")
    return files


def needed(path):
    return set(re.findall(r"NEEDED\).*\[(.+)\]", output_of("readelf", "-dW", path)))


def named(path):
    """Libraries whose names are among a file's strings: those it needs from the start, and those it loads later."""
    return {name.decode() for name in SONAME.findall(path.read_bytes())}


def uses(build):
    """{soname: {(file, "linked" or "loaded later")}}, Tutti's own left out."""
    found = {}
    for path in built_files(build):
        linked = needed(path)
        if not linked:
            sys.exit(f"sbom: {path}: readelf (binutils) finds no library that it needs")
        for soname in linked | named(path):
            if not soname.startswith("libtutti"):
                how = "linked" if soname in linked else "loaded later"
                found.setdefault(soname, set()).add((path.relative_to(build).as_posix(), how))
    return found


# ---- where it comes from


@functools.lru_cache(None)
def known_libraries():
    lines = re.findall(r"^\s*(\S+) \(.*\) => (\S+)$", output_of("ldconfig", "-p"), flags=re.M)
    return [(soname, pathlib.Path(path)) for soname, path in lines]


def library_path(soname, like):
    """Where the loader finds it, for the machine of the file `like`; None: nowhere."""
    machine = like.read_bytes()[:20]
    for name, path in known_libraries():
        with path.open("rb") as f:
            head = f.read(20)
        if name == soname and (head[4:6], head[18:20]) == (machine[4:6], machine[18:20]):
            return path
    return None


def places_of(path):
    """What dpkg may know a library as: a file of /usr/lib may be /lib's, and the other way round."""
    real = path.resolve()
    parent, name = str(real.parent), real.name
    return sorted({str(path), str(real), parent.removeprefix("/usr") + "/" + name, "/usr" + parent + "/" + name})


def debian_packages(paths):
    """{library: (name, version, architecture) of the package that it is from}, without those that are from none. Asked
    for all at once, as dpkg reads all that it knows each time."""
    places = {place: path for path in paths for place in places_of(path)}
    if not places:
        return {}
    said = output_of("dpkg-query", "-S", *places, also_if=1)  # 1: some are not known
    owners = {}
    for owner, place in re.findall(r"^([^,\n]+?)(?:, [^\n]*)?: (/.*)$", said, flags=re.M):
        if place in places:
            owners.setdefault(places[place], owner)
    fields = output_of("dpkg-query", "-W", "-f", "${binary:Package}\t${Package}\t${Version}\t${Architecture}\n",
                       *sorted(set(owners.values())), also_if=1) if owners else ""
    known = {}
    for line in fields.splitlines():
        binary, package, version, architecture = line.split("\t")
        known[binary] = known[package] = (package, version, architecture)
    return {path: known[owner] for path, owner in owners.items() if owner in known}


@functools.lru_cache(None)
def distribution():
    """("debian", "12")"""
    try:
        text = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, flags=re.M))
    return found.get("ID", "debian"), found.get("VERSION_ID", "")


# ---- in SPDX's words


def spdx_id(text):
    return "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def package_of(name, version, **more):
    return {"SPDXID": spdx_id(name), "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
            "copyrightText": "NOASSERTION", **more}


def debian(name, version, architecture):
    where, release = distribution()
    distro = f"&distro={where}-{release}" if release else ""
    place = "@".join(urllib.parse.quote(part, safe="") for part in (name, version))
    locator = f"pkg:deb/{where}/{place}?arch={architecture}{distro}"
    return package_of(name, version, externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                                    "referenceLocator": locator}])


def describe(build):
    """Packages and the relationships of Tutti's to them."""
    libraries = {}  # {SPDX id: (package, {soname: uses})}
    used = {soname: (library_path(soname, build / "bin" / "tutti"), of) for soname, of in sorted(uses(build).items())}
    origins = debian_packages({path for path, _ in used.values() if path})
    for soname, (path, of) in used.items():
        origin = origins.get(path)
        package = debian(*origin) if origin else package_of(soname, "NOASSERTION")
        libraries.setdefault(package["SPDXID"], (package, {}))[1][soname] = of
    packages, relationships = [], []
    for identity, (package, sonames) in sorted(libraries.items()):
        hows = {how for of in sonames.values() for _, how in of}
        files = {file for of in sonames.values() for file, _ in of}
        package["comment"] = f"{', '.join(sonames)}: used by {', '.join(sorted(files))}"
        packages.append(package)
        if "linked" in hows and any("/tutti/" not in file for file in files):
            relationships.append((spdx_id("tutti"), "DYNAMIC_LINK", identity))
        elif "linked" in hows:  # by plug-ins alone
            relationships.append((identity, "OPTIONAL_DEPENDENCY_OF", spdx_id("tutti")))
        else:
            relationships.append((identity, "RUNTIME_DEPENDENCY_OF", spdx_id("tutti")))
    return packages, relationships


def version_of_tutti():
    return re.search(r"project\(tutti VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)


def created():
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or output_of("git", "-C", SOURCE, "log", "-1", "--format=%ct") or 0
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(build):
    version = version_of_tutti()
    packages, relationships = describe(build)
    packages.insert(0, package_of("tutti", version, licenseDeclared="Apache-2.0"))
    relationships.insert(0, ("SPDXRef-DOCUMENT", "DESCRIBES", spdx_id("tutti")))
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()[:32]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"tutti-{version}", "documentNamespace": f"https://spdx.org/spdxdocs/tutti-{version}-{digest}",
            "creationInfo": {"created": created(), "creators": [f"Tool: tutti-sbom-{version}"]}, "packages": packages,
            "relationships": [{"spdxElementId": a, "relationshipType": what, "relatedSpdxElement": b}
                              for a, what, b in relationships]}


def main():
    parser = argparse.ArgumentParser(description="Write a build's bill of materials, as SPDX 2.3.")
    parser.add_argument("build", nargs="?", default="build", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    arguments = parser.parse_args()
    text = json.dumps(document(arguments.build), indent=2) + "\n"
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
