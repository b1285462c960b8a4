package override

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// parseObject reads YAML like an API server: integers are int64.
func parseObject(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	return &unstructured.Unstructured{Object: decode[map[string]any](tb, text)}
}

func parseClusters(tb testing.TB, text string) []match.Cluster {
	tb.Helper()
	return decode[[]match.Cluster](tb, text)
}

func decode[T any](tb testing.TB, text string) T {
	tb.Helper()
	var v T
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		tb.Fatalf("%v in\n%s", err, text)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		tb.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// parsePolicies reads and compiles a stream of policies, and sorts them by their order of effect.
func parsePolicies(tb testing.TB, text string) ([]*Policy, field.ErrorList) {
	tb.Helper()
	var policies []*Policy
	var errs field.ErrorList
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		p, pErrs := parsePolicy(tb, document)
		policies = append(policies, p)
		errs = append(errs, pErrs...)
	}
	slices.SortStableFunc(policies, Order)
	return policies, errs
}

func parsePolicy(tb testing.TB, document []byte) (*Policy, field.ErrorList) {
	tb.Helper()
	switch kind := decode[metav1.TypeMeta](tb, string(document)).Kind; kind {
	case corev1alpha1.KindOverridePolicy:
		p := &corev1alpha1.OverridePolicy{}
		if err := yaml.UnmarshalStrict(document, p); err != nil {
			tb.Fatalf("%v in\n%s", err, document)
		}
		return Compile(p)
	case corev1alpha1.KindClusterOverridePolicy:
		p := &corev1alpha1.ClusterOverridePolicy{}
		if err := yaml.UnmarshalStrict(document, p); err != nil {
			tb.Fatalf("%v in\n%s", err, document)
		}
		return CompileCluster(p)
	default:
		tb.Fatalf("%q is not the kind of a policy, in\n%s", kind, document)
		return nil, nil
	}
}
