package override

import (
	_ "crypto/sha256" // The algorithms that distribution/reference requires.
	_ "crypto/sha512"
	"errors"
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/google/go-cmp/cmp"
)

const (
	sha256 = "sha256:aaaaf56b44807c64d294e6c8059b479f35350b454492398225034174808d1726"
	hex64  = "aaaaf56b44807c64d294e6c8059b479f35350b454492398225034174808d1726"
)

func TestParseImage(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   image
		err    string // The reason; empty for a valid reference.
	}{
		"Repository":      {"No defaults are added.", "nginx", image{repository: "nginx"}, ""},
		"Path":            {"A first segment without a dot or a colon is no registry.", "ealen/echo-server", image{repository: "ealen/echo-server"}, ""},
		"Tag":             {"", "nginx:1.25", image{repository: "nginx", tag: "1.25"}, ""},
		"Digest":          {"", "nginx@" + sha256, image{repository: "nginx", digest: sha256}, ""},
		"All":             {"A reference may have all four components.", "reg:5000/a/b:v1@" + sha256, image{"reg:5000", "a/b", "v1", sha256}, ""},
		"Dot":             {"A first segment with a dot is a registry.", "quay.io/a", image{registry: "quay.io", repository: "a"}, ""},
		"DotAlone":        {"Without a slash, a name with a dot is a repository.", "quay.io", image{repository: "quay.io"}, ""},
		"Port":            {"A first segment with a port is a registry.", "r:1/a", image{registry: "r:1", repository: "a"}, ""},
		"PortOrTag":       {"Without a slash, the number after the colon is a tag.", "localhost:5000", image{repository: "localhost", tag: "5000"}, ""},
		"Localhost":       {"localhost is a registry.", "localhost/x", image{registry: "localhost", repository: "x"}, ""},
		"IPv6":            {"An IPv6 address in brackets is a registry.", "[::1]:5000/x", image{registry: "[::1]:5000", repository: "x"}, ""},
		"IPv6NoPort":      {"An IPv6 address needs no port.", "[fe80::1]/x:y", image{registry: "[fe80::1]", repository: "x", tag: "y"}, ""},
		"IPv4":            {"An IPv4 address has dots, so it is a registry.", "10.0.0.1/x", image{registry: "10.0.0.1", repository: "x"}, ""},
		"UpperDomain":     {"An upper-case domain without a dot is parsed like distribution/reference does.", "REG/foo", image{repository: "REG/foo"}, ""},
		"Underscore":      {"A first segment with a dot may be no valid domain, but a valid path.", "a_b.c/d", image{registry: "a_b.c", repository: "d"}, ""},
		"Separators":      {"Separators are one dot, one or two underscores, or any number of dashes.", "a.b_c__d---e", image{repository: "a.b_c__d---e"}, ""},
		"HexName":         {"A name may look like a digest.", hex64, image{repository: hex64}, ""},
		"HexTag":          {"A digest without @ is a name and a tag.", sha256, image{repository: "sha256", tag: hex64}, ""},
		"SHA512":          {"", "a@sha512:" + hex64 + hex64, image{repository: "a", digest: "sha512:" + hex64 + hex64}, ""},
		"SHA384":          {"", "a@sha384:" + hex64 + hex64[:32], image{repository: "a", digest: "sha384:" + hex64 + hex64[:32]}, ""},
		"LongTag":         {"128 are allowed.", "a:" + strings.Repeat("x", 128), image{repository: "a", tag: strings.Repeat("x", 128)}, ""},
		"LongPath":        {"255 are allowed.", strings.Repeat("x", 255), image{repository: strings.Repeat("x", 255)}, ""},
		"LongWithDomain":  {"The domain does not count.", "r.io/" + strings.Repeat("x", 255), image{registry: "r.io", repository: strings.Repeat("x", 255)}, ""},
		"Empty":           {"", "", image{}, whyEmpty},
		"Upper":           {"A repository has no upper-case letters.", "Foo", image{}, whyName},
		"Space":           {"", "a b", image{}, whyName},
		"Slash":           {"", "a/", image{}, whyName},
		"FirstSlash":      {"", "/a", image{}, whyName},
		"Scheme":          {"", "https://r.io/a", image{}, whyName},
		"TooLongPath":     {"", strings.Repeat("x", 256), image{}, whyName},
		"SeparatorFirst":  {"", "-a", image{}, whyName},
		"SeparatorLast":   {"", "a-", image{}, whyName},
		"TwoDots":         {"", "a..b", image{}, whyName},
		"Underscores":     {"", "a___b", image{}, whyName},
		"MixedSeparators": {"", "a_-b", image{}, whyName},
		"Port0":           {"", "r.io:/a", image{}, whyName},
		"PortWord":        {"", "r.io:x/a", image{}, whyName},
		"IPv6Open":        {"", "[::1/a", image{}, whyName},
		"Label":           {"", "-r.io/a", image{}, whyName},
		"NoTag":           {"", "a:", image{}, whyTag},
		"TooLongTag":      {"", "a:" + strings.Repeat("x", 129), image{}, whyTag},
		"TagDash":         {"", "a:-x", image{}, whyTag},
		"TwoTags":         {"", "a:x:y", image{}, whyTag},
		"NoDigest":        {"", "a@", image{}, whyDigest},
		"ShortDigest":     {"", "a@sha256:aaaa", image{}, whyDigest},
		"UpperDigest":     {"", "a@sha256:" + strings.ToUpper(hex64), image{}, whyDigest},
		"OtherDigest":     {"A digest with an unsupported algorithm is invalid.", "a@md5:" + hex64[:32], image{}, whyDigest},
		"TwoDigests":      {"", "a@" + sha256 + "@" + sha256, image{}, whyDigest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseImage(tc.in)
			if tc.err != "" {
				if !errors.Is(err, ErrImage) || !strings.HasSuffix(err.Error(), tc.err) {
					t.Errorf("%s\nparseImage(%q) error: want %s, got %v", tc.reason, tc.in, tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\nparseImage(%q): %v", tc.reason, tc.in, err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(image{})); diff != "" {
				t.Errorf("%s\nparseImage(%q): -want, +got:\n%s", tc.reason, tc.in, diff)
			}
		})
	}
}

// FuzzParseImage compares the parser with distribution/reference.
func FuzzParseImage(f *testing.F) {
	for _, s := range []string{
		"", "nginx", "ealen/echo-server:latest", "localhost:5000", "localhost:5000/a", "[::1]:5000/x:y", "REG/foo", "a_b.c/d", "r.io:/a", "[:/a",
		"a.b/c__d---e:V1.0-x_y@" + sha256, "a@sha512:" + hex64 + hex64, "a@md5:" + hex64[:32], "a@sha256+b64:" + hex64, hex64, "a:b:c", "a..b", "A/b",
	} {
		f.Add(s)
	}
	f.Fuzz(checkParseImage)
}

// TestParseImageShort compares the parsers on all short texts with one character of each class of the grammar.
func TestParseImageShort(t *testing.T) {
	const alphabet = "aZ0._-/:@[] "
	texts := []string{""}
	for range 5 {
		for _, s := range texts {
			checkParseImage(t, s)
		}
		longer := make([]string, 0, len(alphabet)*len(texts))
		for _, s := range texts {
			for _, c := range alphabet {
				longer = append(longer, s+string(c))
			}
		}
		texts = longer
	}
	// Texts of six characters, and texts of five characters after a registry. To save time, all of them begin with
	// "a0".
	for _, s := range texts {
		if s[0] == 'a' && s[1] == '0' {
			checkParseImage(t, "r.io/"+s)
			checkParseImage(t, s+"a")
		}
	}
}

// checkParseImage verifies that both parsers accept the same texts with the same components, and that the components
// together are the text.
func checkParseImage(t *testing.T, s string) {
	t.Helper()
	got, err := parseImage(s)
	want, wantErr := reference.Parse(s)
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%q: want error %v, got %v", s, wantErr, err)
	}
	if err != nil {
		return
	}
	var name, tag, digest string
	if named, ok := want.(reference.Named); ok {
		name = named.Name()
	}
	if tagged, ok := want.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	if digested, ok := want.(reference.Digested); ok {
		digest = digested.Digest().String()
	}
	onlyName := image{registry: got.registry, repository: got.repository}
	if onlyName.String() != name || got.tag != tag || got.digest != digest || got.String() != s {
		t.Errorf("%q: want name %q, tag %q, digest %q, got %+v", s, name, tag, digest, got)
	}
	first, _, several := strings.Cut(name, "/")
	if has := several && (strings.ContainsAny(first, ".:") || first == "localhost"); has != (got.registry != "") {
		t.Errorf("%q: registry %q", s, got.registry)
	}
}
