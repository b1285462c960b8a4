package member

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

var jobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

const endedAt = "2026-03-04T05:06:07Z"

// job returns a Job in the form of a watch.
func job(tb testing.TB, version string, suspend bool, condition, state string) *received {
	tb.Helper()
	status := map[string]any{"startTime": endedAt, "active": int64(1)}
	if condition != "" {
		status["conditions"] = []any{
			map[string]any{"type": "Suspended", "status": "False"},
			map[string]any{"type": condition, "status": state, "lastTransitionTime": endedAt},
		}
	}
	return objectOf(tb, map[string]any{
		"apiVersion": "batch/v1", "kind": "Job",
		"metadata": map[string]any{
			"namespace": webName.Namespace, "name": webName.Name, "uid": firstUID, "resourceVersion": version,
			"annotations": map[string]any{refractv1alpha1.SourceAnnotation: "hub/" + secondUID + "/jobs.batch/d/web"},
		},
		"spec":   map[string]any{"suspend": suspend, "completions": int64(1)},
		"status": status,
	})
}

func TestReadinessOfJobs(t *testing.T) {
	suspended := job(t, "1", true, "Suspended", "True")
	suspended.status = []byte(`{"conditions":[{"type":"Suspended","status":"True"}]}`)
	cases := map[string]struct {
		reason  string
		job     *received
		want    refractv1alpha1.Readiness
		message string
		ended   string
	}{
		"Running":   {"A running Job is not ready.", job(t, "1", false, "", ""), "InProgress", "Job in progress. success:0, active: 1, failed: 0", ""},
		"Suspended": {"A suspended Job is not ready.", suspended, "InProgress", "Job not started", ""},
		"Complete":  {"A complete Job is ready.", job(t, "1", false, "Complete", "True"), "Ready", "Complete at " + endedAt, "Complete"},
		"Failed":    {"A failed Job has ended, too.", job(t, "1", false, "Failed", "True"), "Failed", "Failed at " + endedAt + ": Job Failed. failed: 0/1", "Failed"},
		"NotYet":    {"A condition that is not true does not count.", job(t, "1", false, "Complete", "False"), "InProgress", "Job in progress. success:0, active: 1, failed: 0", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ready, message := decoder{}.readinessOf(tc.job)
			ended := decoder{}.endOf(tc.job, jobs.GroupResource()).Outcome()
			want, got := [...]string{string(tc.want), tc.message, tc.ended}, [...]string{string(ready), message, ended}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestVanishedJobs(t *testing.T) {
	name := types.NamespacedName{Namespace: webName.Namespace, Name: webName.Name}
	source := "hub/" + secondUID + "/jobs.batch/d/web"
	complete := Ended(1772600767)
	cases := map[string]struct {
		reason string
		do     func(copies)
		want   Vanished
		known  bool
	}{
		"Event": {
			"The deletion event has the last state of the Job, even if no earlier event showed its end.",
			func(c copies) { _ = c.Delete(job(t, "12", false, "Complete", "True")) },
			Vanished{Source: source, Ended: complete, Seen: true}, true,
		},
		"Unfinished": {
			"A user deleted the running Job.",
			func(c copies) { _ = c.Delete(job(t, "12", false, "", "")) },
			Vanished{Source: source, Seen: true}, true,
		},
		"Listed": {
			"A list does not show how a missing Job ended.",
			func(c copies) { _ = c.Replace(nil, "20") },
			Vanished{Source: source}, true,
		},
		"ListedAfterEnd": {
			"The end of the Job was seen before the list.",
			func(c copies) { _ = c.Update(job(t, "12", false, "Complete", "True")); _ = c.Replace(nil, "20") },
			Vanished{Source: source, Ended: complete}, true,
		},
		"Late": {
			"A read has shown before the event that the Job is gone.",
			func(c copies) { c.forget(name); _ = c.Delete(job(t, "12", false, "Complete", "True")) },
			Vanished{Source: source, Ended: complete, Seen: true}, true,
		},
		"MetadataAfterEnd": {
			"The answer to a write has no status.",
			func(c copies) {
				_ = c.Update(job(t, "12", false, "Complete", "True"))
				c.remember(name, copyOf(&job(t, "13", false, "", "").PartialObjectMetadata, jobs.GroupResource(), c.decode.account), true)
				_ = c.Replace(nil, "20")
			},
			Vanished{Source: source, Ended: complete}, true,
		},
		"Again": {
			"Another Job has the name now.",
			func(c copies) { _ = c.Delete(job(t, "12", false, "", "")); _ = c.Add(job(t, "13", false, "", "")) },
			Vanished{}, false,
		},
	}
	for n, tc := range cases {
		t.Run(n, func(t *testing.T) {
			var got told
			c := got.copies(jobs)
			_ = c.Replace([]any{job(t, "10", false, "", "")}, "10")
			got = told{}
			tc.do(c)
			last, known := c.store.vanished[name]
			v := Vanished{Source: last.source.of(c.records.key(name)), Ended: last.ended, Seen: last.seen}
			if !known {
				v = Vanished{}
			}
			if diff := cmp.Diff(tc.want, v); diff != "" || known != tc.known {
				t.Errorf("%s\nknown: want %t, got %t\n-want, +got:\n%s", tc.reason, tc.known, known, diff)
			}
			if got.changed == 0 && n != "Late" {
				t.Errorf("%s\nwant a report of the change", tc.reason)
			}
		})
	}
}
