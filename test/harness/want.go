package harness

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// WantStatus fails the test unless err is an error of an API server with the status code, and contains all texts.
func WantStatus(t *testing.T, reason string, err error, code int32, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s\nwant an error with %q", reason, texts)
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		t.Errorf("%s\nwant the code %d: %v", reason, code, err)
	}
	WantAll(t, reason, err.Error(), texts)
}

// WantAll fails the test unless the output contains all texts.
func WantAll(t *testing.T, reason, printed string, texts []string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(printed, text) {
			t.Errorf("%s\n%q is not in\n%s", reason, text, printed)
		}
	}
}

// Field returns a field of an object as text: "absent" for a missing object, "" for a missing field.
func Field(u *unstructured.Unstructured, path ...string) string {
	if u == nil {
		return "absent"
	}
	v, ok, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil || !ok {
		return ""
	}
	return fmt.Sprint(v)
}
