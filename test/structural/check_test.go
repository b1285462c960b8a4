package structural

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
)

// TestCheckAgreesWithTheServer: Check and a server agree on definitions, cause by cause.
func TestCheckAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	const definitions = 600
	var refused, accepted, unreadable atomic.Int64
	var mu sync.Mutex
	breakages, wrong := map[string]bool{}, 0
	each(t, definitions, func(t *testing.T, i uint64) { //nolint:thelper // This function is the test.
		name := fmt.Sprintf("broken%d.%s", i, group)
		crd, what := broken(i, generate.CRD(source(i+2_000_000), name, generate.SchemaOptions{Depth: 3}))
		live := askCheck(t, crd)
		switch live.Code {
		case http.StatusOK:
			accepted.Add(1)
		case http.StatusBadRequest:
			unreadable.Add(1)
		default:
			refused.Add(1)
		}
		difference := cmp.Diff(predictCheck(crd), live)
		mu.Lock()
		defer mu.Unlock()
		for _, w := range what {
			breakages[w] = breakages[w] || live.Code == http.StatusUnprocessableEntity
		}
		if difference == "" {
			return
		}
		if wrong++; wrong > 5 {
			t.Errorf("seed %d: another difference, not printed", i)
			return
		}
		crd = generate.Shrink(crd, func(o map[string]any) bool {
			return at(o, "kind") == at(crd, "kind") && at(o, "apiVersion") == at(crd, "apiVersion") &&
				askCheck(t, o).Code == live.Code && cmp.Diff(predictCheck(o), askCheck(t, o)) != ""
		}, func() bool { return t.Context().Err() != nil })
		t.Errorf("seed %d (%s): Check and the server differ: -Check, +server:\n%s--- definition\n%s",
			i, strings.Join(what, ", "), cmp.Diff(predictCheck(crd), askCheck(t, crd)), yamlOf(crd))
	})
	t.Logf("%d refused, %d accepted, %d unreadable", refused.Load(), accepted.Load(), unreadable.Load())
	if refused.Load() < 200 {
		t.Errorf("%d definitions were rejected, want 200 or more", refused.Load())
	}
	for name, seen := range breakages {
		if !seen {
			t.Errorf("%s: no definition with this breakage was rejected", name)
		}
	}
}

// named matches the type name of a rule's self. The server generates a different one each time.
var named = regexp.MustCompile(`selfType\d*`)

// predictCheck returns the verdict of Check on the creation of a definition.
func predictCheck(crd map[string]any) verdict {
	findings, err := structural.Check(crd)
	if err != nil {
		return verdict{Code: http.StatusBadRequest}
	}
	out := verdict{Code: http.StatusOK}
	for _, f := range findings {
		if f.Severity == structural.Error && f.Rule != "UnknownField" && f.Rule != "InvalidCABundle" { // The server accepts these.
			out.Code = http.StatusUnprocessableEntity
			out.Causes = append(out.Causes, named.ReplaceAllString(strings.Join([]string{f.Rule, f.Path, f.Message}, " | "), "self"))
		}
	}
	out.Causes = set(told(out.Causes))
	return out
}

// versions matches the list of versions in a cause. The server prints whole versions, Check prints only their names.
var versions = regexp.MustCompile(`(?s)(\| spec\.versions \| Invalid value: ).*(: must )`)

// told converts causes to the form of Check: without the content of versions, and without the errors in the status that
// result from a missing or a second storage version.
func told(causes []string) []string {
	out := make([]string, len(causes))
	unstored := false
	for i, c := range causes {
		out[i] = versions.ReplaceAllString(c, "${1}…${2}")
		unstored = unstored || strings.Contains(c, ": must have exactly one version marked as storage version")
	}
	return slices.DeleteFunc(out, func(c string) bool { return unstored && strings.Contains(c, " | status.storedVersions | ") })
}

// askCheck returns the server's verdict.
func askCheck(t *testing.T, crd map[string]any) verdict {
	t.Helper()
	a, err := shared.do(t.Context(), http.MethodPost, definitions+dryRun, encode(t, crd))
	if err != nil {
		t.Fatal(err)
	}
	if a.code/100 == 2 {
		return verdict{Code: http.StatusOK}
	}
	if a.code != http.StatusUnprocessableEntity {
		return verdict{Code: a.code}
	}
	status, err := a.status()
	if err != nil {
		t.Fatal(err)
	}
	out := verdict{Code: a.code}
	for _, c := range status.Details.Causes {
		out.Causes = append(out.Causes, written(crd, named.ReplaceAllString(strings.Join([]string{string(c.Type), c.Field, c.Message}, " | "), "self"))...)
	}
	out.Causes = set(told(out.Causes))
	return out
}

// written returns causes with the paths of the manifest. The server reports the paths of its internal form, in which
// parts that are equal in all versions occur once.
func written(crd map[string]any, cause string) []string {
	cause = strings.NewReplacer(
		"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig",
		"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions",
	).Replace(cause)
	for internal, version := range map[string]string{
		"spec.validation": "schema", "spec.subresources": "subresources",
		"spec.additionalPrinterColumns": "additionalPrinterColumns", "spec.selectableFields": "selectableFields",
	} {
		if !strings.Contains(cause, "| "+internal) {
			continue
		}
		var out []string
		for i := range list(crd, "spec", "versions") {
			out = append(out, strings.ReplaceAll(cause, internal, fmt.Sprintf("spec.versions[%d].%s", i, version)))
		}
		return out
	}
	return []string{cause}
}
