package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRun runs migrations against servers with faults. test/migration uses a real API server.
func TestRun(t *testing.T) {
	type want struct {
		outcome   Outcome
		err       error
		failed    int
		in        map[string]int
		stored    string
		annotated bool
	}
	migrated := want{outcome: Migrated, in: map[string]int{"v2": 450}, stored: "[v2]"}
	cases := map[string]struct {
		reason string
		with   func(s *server)
		want   want
	}{
		"Well": {
			reason: "All objects are rewritten, page by page.",
			want:   migrated,
		},
		"TooManyRequests": {
			reason: "An overloaded API server names the time of the next attempt.",
			with: func(s *server) {
				s.before = twice(http.MethodPatch, widgetsPath, func(w http.ResponseWriter) {
					w.Header().Set("Retry-After", "0")
					deny(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, nil)
				})
			},
			want: migrated,
		},
		"Restarted": {
			reason: "The migration waits for an API server that is briefly unavailable.",
			with: func(s *server) {
				s.before = twice("", widgetsPath+"/w-000", func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
			},
			want: migrated,
		},
		"InternalErrors": {
			reason: "A request that failed with a server error is repeated.",
			with: func(s *server) {
				s.before = twice(http.MethodPatch, widgetsPath, func(w http.ResponseWriter) {
					deny(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, nil)
				})
			},
			want: migrated,
		},
		"Expired": {
			reason: "After the token of a list has expired, the list continues with the current objects.",
			with: func(s *server) {
				expired := map[string]bool{}
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					token := r.URL.Query().Get("continue")
					if token == "" || strings.HasSuffix(token, "-new") || expired[token] {
						return false
					}
					expired[token] = true
					deny(w, http.StatusGone, metav1.StatusReasonExpired, func(s *metav1.Status) { s.Continue = token + "-new" })
					return true
				}
			},
			want: migrated,
		},
		"Conflicts": {
			reason: "An object that another writer keeps changing is rewritten without preconditions.",
			with: func(s *server) {
				s.before = func(_ http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/w-0007") && s.stored["w-0007"].in == "v1" {
						s.put("w-0007", "v1")
					}
					return false
				}
			},
			want: migrated,
		},
		"Gone": {
			reason: "An object that is deleted during the migration needs no rewrite.",
			with: func(s *server) {
				s.wrote = func(string) { delete(s.stored, "w-0449") }
			},
			want: want{outcome: Migrated, in: map[string]int{"v2": 449}, stored: "[v2]"},
		},
		"GoneAllTheTime": {
			reason: "If objects are deleted in each pass, two passes without a rewrite are enough.",
			with: func(s *server) {
				n := 0
				s.before = func(_ http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == widgetsPath && r.URL.Query().Get("continue") == "" {
						s.put(fmt.Sprintf("brief-%04d", n), "v2")
						n++
					}
					if name, ok := strings.CutPrefix(r.URL.Path, widgetsPath+"/brief-"); ok {
						delete(s.stored, "brief-"+name)
					}
					return false
				}
			},
			want: migrated,
		},
		"NotServed": {
			reason: "A 404 from an API server that does not serve the version yet does not mean that the object was deleted.",
			with: func(s *server) {
				s.before = twice(http.MethodPatch, widgetsPath, func(w http.ResponseWriter) {
					deny(w, http.StatusNotFound, metav1.StatusReasonNotFound, nil)
				})
			},
			want: migrated,
		},
		"NoStatus": {
			reason: "A 404 from a proxy does not mean that the object was deleted.",
			with:   func(s *server) { s.before = twice(http.MethodPatch, widgetsPath, notFound) },
			want:   migrated,
		},
		"GoneAgainAndAgain": {
			reason: "An object that is in each list was not deleted, even if every answer is 404.",
			with: func(s *server) {
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, "/w-0001") {
						return false
					}
					missing(w, "w-0001")
					return true
				}
			},
			want: want{err: ErrUnsettled, in: map[string]int{"v1": 1, "v2": 449}, stored: "[v1 v2]", annotated: true},
		},
		"ConflictsAndLagging": {
			reason: "A patch that met an unknown state of the object does not prove that the object is stored in v2.",
			with: func(s *server) {
				s.before = func(_ http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == widgetsPath || r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/w-0007") {
						s.put("w-0007", "v1")
					}
					return false
				}
			},
			want: want{err: ErrUnsettled, in: map[string]int{"v1": 1, "v2": 449}, stored: "[v1 v2]", annotated: true},
		},
		"Lagging": {
			reason: "Objects that an API server with the old definition writes in v1 are found, even after their rewrite.",
			with: func(s *server) {
				s.wrote = func(name string) {
					if name == "w-0300" {
						s.wrote = nil
						s.put("w-0001", "v1")
						s.put("a-new-one", "v1")
					}
				}
			},
			want: want{outcome: Migrated, in: map[string]int{"v2": 451}, stored: "[v2]"},
		},
		"AlwaysLagging": {
			reason: "A version stays in storedVersions as long as objects are being stored in it.",
			with: func(s *server) {
				s.wrote = func(string) { s.put("w-0001", "v1") }
			},
			want: want{err: ErrUnsettled, in: map[string]int{"v1": 1, "v2": 449}, stored: "[v1 v2]", annotated: true},
		},
		"Denied": {
			reason: "Rejected objects are named, and all others are rewritten.",
			with: func(s *server) {
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "9") {
						return false
					}
					deny(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, nil)
					return true
				}
			},
			want: want{outcome: Failed, failed: 45, in: map[string]int{"v1": 45, "v2": 405}, stored: "[v1 v2]"},
		},
		"Hopeless": {
			reason: "After many consecutive failures, the remaining objects are not tried.",
			with: func(s *server) {
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodPatch || !strings.HasPrefix(r.URL.Path, widgetsPath) {
						return false
					}
					deny(w, http.StatusForbidden, metav1.StatusReasonForbidden, nil)
					return true
				}
			},
			want: want{outcome: Failed, failed: mostInARow, in: map[string]int{"v1": 450}, stored: "[v1 v2]"},
		},
		"NotTakenUp": {
			reason: "The definition names v2 as the storage version, but the API server does not store in v2 yet.",
			with: func(s *server) {
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != v2Path {
						return false
					}
					reply(w, map[string]any{"resources": []any{map[string]any{"name": "widgets", "storageVersionHash": "b3RoZXI="}}})
					return true
				}
			},
			want: want{err: ErrNotTakenUp, in: map[string]int{"v1": 450}, stored: "[v1 v2]"},
		},
		"FallsBehind": {
			reason: "An API server with an old definition would rewrite objects in v1, so a page counts only after a check of the storage version.",
			with: func(s *server) {
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != v2Path || s.stored["w-0250"].in == "v1" {
						return false
					}
					reply(w, map[string]any{"resources": []any{map[string]any{"name": "widgets", "storageVersionHash": "b3RoZXI="}}})
					return true
				}
			},
			want: want{err: ErrNotTakenUp, in: map[string]int{"v1": 50, "v2": 400}, stored: "[v1 v2]", annotated: true},
		},
		"Changed": {
			reason: "If the definition changes, the migration ends, because its checks no longer hold.",
			with: func(s *server) {
				s.wrote = func(string) { sub(s.crd, "metadata")["generation"] = 3 }
			},
			want: want{err: ErrChanged, in: map[string]int{"v1": 250, "v2": 200}, stored: "[v1 v2]", annotated: true},
		},
		"StatusConflict": {
			reason: "Another writer may change the definition at the same time.",
			with: func(s *server) {
				once := false
				s.before = func(_ http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, "/status") && !once {
						once = true
						sub(s.crd, "metadata")["resourceVersion"] = "other"
					}
					return false
				}
			},
			want: migrated,
		},
		"StaleMark": {
			reason: "The progress of a migration to another version is ignored.",
			with: func(s *server) {
				sub(sub(s.crd, "metadata"), "annotations")[Annotation] = `{"to":"v1","generation":2,"after":"w-0400"}`
			},
			want: migrated,
		},
		"BrokenMark": {
			reason: "Any client can write the annotation, so an invalid one is ignored.",
			with: func(s *server) {
				sub(sub(s.crd, "metadata"), "annotations")[Annotation] = `{"to":`
			},
			want: migrated,
		},
		"WrongMark": {
			reason: "A wrong annotation cannot prevent the migration of an object.",
			with: func(s *server) {
				sub(sub(s.crd, "metadata"), "annotations")[Annotation] = `{"to":"v2","generation":2,"after":"z"}`
			},
			want: migrated,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 450)
			if tc.with != nil {
				tc.with(s)
			}
			r, err := s.migration(t, nil).run(t.Context())
			if !errors.Is(err, tc.want.err) {
				t.Fatalf("\n%s\nrun(): want error %v, got %v", tc.reason, tc.want.err, err)
			}
			got := want{err: tc.want.err, in: s.storedIn()}
			if r != nil {
				got.outcome, got.failed = r.Outcome, r.Failed
				if r.GaveUp { // The other workers may add failures after the last counted failure.
					got.failed = r.Failed - min(workers-1, max(0, r.Failed-mostInARow))
				}
				if r.Objects != r.Rewritten+r.Unchanged+r.Gone+r.Failed {
					t.Errorf("\n%s\nrun(): the numbers do not add up: %+v", tc.reason, r)
				}
			}
			var annotation string
			got.stored, annotation = s.known()
			got.annotated = annotation != ""
			if diff := cmp.Diff(fmt.Sprintf("%+v", tc.want), fmt.Sprintf("%+v", got)); diff != "" {
				t.Errorf("\n%s\nrun(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// twice answers the first two requests with this method, for each path with this prefix.
func twice(method, prefix string, answer func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
	seen := map[string]int{}
	return func(w http.ResponseWriter, r *http.Request) bool {
		if (method != "" && r.Method != method) || !strings.HasPrefix(r.URL.Path, prefix) || seen[r.URL.Path] == 2 {
			return false
		}
		seen[r.URL.Path]++
		answer(w)
		return true
	}
}

// notFound answers with a 404 without a Status, as a proxy does.
func notFound(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }

// TestNotGone has an API server that reports an existing object as deleted. The object must be rewritten, even in a
// pass without other work.
func TestNotGone(t *testing.T) {
	cases := map[string]struct {
		reason string
		method string // Method of the requests with a false answer, one for each object; empty for all methods.
		passes int
	}{
		"Behind": {
			reason: "An API server that is behind may not know an object, so the object is read from etcd.",
			method: http.MethodPatch, passes: 2,
		},
		"AfterAll": {
			reason: "An object that is in the next list was not deleted, even if the answer was 404.",
			passes: 3,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 3)
			said := map[string]bool{}
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				name, ok := strings.CutPrefix(r.URL.Path, widgetsPath+"/")
				if request := r.Method + name; ok && (tc.method == "" || r.Method == tc.method) && !said[request] {
					said[request] = true
					missing(w, name)
					return true
				}
				return false
			}
			r, err := s.migration(t, nil).run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != Migrated || r.Gone != 0 || r.Rewritten != 3 || r.Objects != 3 || r.Passes != tc.passes {
				t.Errorf("\n%s\nrun(): want 3 objects rewritten in %d passes, got %+v", tc.reason, tc.passes, r)
			}
			if diff := cmp.Diff(map[string]int{"v2": 3}, s.storedIn()); diff != "" {
				t.Errorf("\n%s\nrun(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNeverServed checks that a migration ends with an error if no API server serves the version. No object may count
// as deleted.
func TestNeverServed(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"Status":   func(w http.ResponseWriter) { deny(w, http.StatusNotFound, metav1.StatusReasonNotFound, nil) },
		"NoStatus": notFound,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 3)
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPatch || !strings.HasPrefix(r.URL.Path, widgetsPath) {
					return false
				}
				answer(w)
				return true
			}
			m := s.migration(t, nil)
			m.pace.away = 20 * time.Millisecond
			if r, err := m.run(t.Context()); !errors.Is(err, errUnknown) {
				t.Errorf("run(): want %v, got %v, %+v", errUnknown, err, r)
			}
			if stored, _ := s.known(); stored != "[v1 v2]" {
				t.Errorf("run(): want storedVersions as before, got %s", stored)
			}
		})
	}
}

// TestDryRunJudgesAll checks that a dry run also visits the objects that an interrupted run has already visited.
func TestDryRunJudgesAll(t *testing.T) {
	s := newServer(t, 5)
	sub(sub(s.crd, "metadata"), "annotations")[Annotation] = `{"to":"v2","generation":2,"after":"w-0003"}`
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/w-0001") {
			return false
		}
		deny(w, http.StatusForbidden, metav1.StatusReasonForbidden, nil)
		return true
	}
	r, err := s.migration(t, func(o *Options) { o.DryRun = true }).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != Failed || r.Objects != 5 || r.Failed != 1 || r.ContinuedAfter != "" {
		t.Errorf("run(): want one of 5 objects to fail, got %+v", r)
	}
}

// TestAway has a server that stays unreachable. The migration must end, and a later run must be able to continue it.
func TestAway(t *testing.T) {
	s := newServer(t, 450)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch && r.URL.Path >= widgetsPath+"/w-0350" && strings.HasPrefix(r.URL.Path, widgetsPath+"/") {
			deny(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, nil)
			return true
		}
		return false
	}
	m := s.migration(t, nil)
	m.pace.away = 20 * time.Millisecond
	if _, err := m.run(t.Context()); err == nil || !strings.Contains(err.Error(), "ServiceUnavailable") {
		t.Fatalf("run(): want why it ended, got %v", err)
	}
	s.heal()
	r, err := s.migration(t, nil).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != Migrated || r.ContinuedAfter != "w-0199" {
		t.Errorf("run(): want it continued after the first page, got %+v", r)
	}
}

// TestCanceled checks that a migration ends with its context, in every phase.
func TestCanceled(t *testing.T) {
	for _, phase := range []Phase{Waiting, Reading, Rewriting, Verifying} {
		t.Run(string(phase), func(t *testing.T) {
			s := newServer(t, 450)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := s.migration(t, func(o *Options) {
				o.Progress = func(p Progress) {
					if p.Phase == phase {
						cancel()
					}
				}
			})
			if _, err := m.run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("run(): want %v, got %v", context.Canceled, err)
			}
			if stored, _ := s.known(); stored != "[v1 v2]" {
				t.Errorf("run(): want storedVersions as before, got %s", stored)
			}
		})
	}
}

// TestRate checks the limit on rewritten objects per second.
func TestRate(t *testing.T) {
	s := newServer(t, 30)
	began := time.Now()
	if _, err := s.migration(t, func(o *Options) { o.Rate = 50 }).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first eight objects do not wait. The other 22 take 22/50 s.
	if took := time.Since(began); took < 430*time.Millisecond {
		t.Errorf("run(): 30 objects at 50 a second took %s", took)
	}
}

// TestVerifiesOnlyWhatChanged checks that the second pass sends no request for an unchanged object.
func TestVerifiesOnlyWhatChanged(t *testing.T) {
	s := newServer(t, 450)
	if _, err := s.migration(t, nil).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.requests("PATCH " + widgetsPath); got != 450 {
		t.Errorf("run(): want a patch for each object, got %d", got)
	}
}

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		reason string
		with   func(crd map[string]any)
		to     string
		want   error
		text   string
	}{
		"Well": {reason: "The version is the storage version.", to: "v2"},
		"NotStorage": {
			reason: "New objects would be stored in v2.", to: "v1", want: ErrNotStorage,
			text: "widgets.example.org: version v1: it is not the storage version: that is v2",
		},
		"NoVersion": {
			reason: "The definition has other versions only.", to: "v3", want: ErrNoVersion,
			text: "widgets.example.org: v3: there is no such version: it has v1, v2",
		},
		"NotServed": {
			reason: "Objects cannot be written in a version that is not served.", to: "v2", want: ErrNotServed,
			with: func(crd map[string]any) {
				sub(crd, "spec")["versions"].([]any)[1].(map[string]any)["served"] = false
			},
		},
		"Terminating": {
			reason: "The definition is being deleted.", to: "v2", want: ErrNotReady,
			with: func(crd map[string]any) { sub(crd, "metadata")["deletionTimestamp"] = "2026-01-01T00:00:00Z" },
		},
		"NotEstablished": {
			reason: "The definition is not established, so its names may belong to another one.", to: "v2", want: ErrNotReady,
			with: func(crd map[string]any) { sub(crd, "status")["conditions"] = []any{} },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 0)
			if tc.with != nil {
				tc.with(s.crd)
			}
			err := s.migration(t, func(o *Options) { o.To = tc.to }).prepare(t.Context())
			if !errors.Is(err, tc.want) {
				t.Errorf("\n%s\nprepare(): want %v, got %v", tc.reason, tc.want, err)
			}
			if tc.text != "" && err != nil {
				if diff := cmp.Diff(tc.text, err.Error()); diff != "" {
					t.Errorf("\n%s\nprepare(): -want, +got:\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestWriteText(t *testing.T) {
	cases := map[string]struct {
		reason string
		result Result
		want   string
	}{
		"Migrated": {
			reason: "The text has the number of objects and the new storedVersions.",
			result: Result{
				Name: "widgets.example.org", To: "v2", Outcome: Migrated, Objects: 1200, Rewritten: 1190, Unchanged: 9, Gone: 1, Seconds: 12.34,
				StoredVersionsBefore: []string{"v1", "v2"}, StoredVersionsAfter: []string{"v2"},
			},
			want: `✔ widgets.example.org is migrated to v2 after 12.3 s
  1,200 objects: 1190 rewritten, 9 already there, 1 gone, 0 failed
  storedVersions: v1, v2 → v2
`,
		},
		"Refused": {
			reason: "The text names the objects that cannot be read, and the possible actions.",
			result: Result{
				Name: "widgets.example.org", To: "v2", Outcome: Refused, Failed: 1,
				Failures: []Failure{{Object: "shop/w", Message: "it cannot be read in version v2: no"}},
			},
			want: `✗ shop/w: it cannot be read in version v2: no
✗ widgets.example.org cannot be migrated to v2: 1 object cannot be read in it; nothing was written
  fix the conversion, or make the old version the storage version again to fix or delete the object
`,
		},
		"Failed": {
			reason: "The text names failed objects, their number, and states that nothing else was changed.",
			result: Result{
				Name: "widgets.example.org", To: "v2", Outcome: Failed, Objects: 60, Failed: 50, Unchanged: 10, GaveUp: true,
				Failures: []Failure{{Object: "shop/w", Message: "no"}}, StoredVersionsAfter: []string{"v1", "v2"},
			},
			want: `✗ shop/w: no
✗ and 49 more objects
✗ widgets.example.org is not migrated to v2
  50 failed in a row, and the rest were not tried
  60 objects: 0 rewritten, 10 already there, 0 gone, 50 failed
  storedVersions stays: v1, v2
`,
		},
		"WouldMigrate": {
			reason: "A dry run cannot know the stored version of an object.",
			result: Result{Name: "widgets.example.org", To: "v2", DryRun: true, Outcome: WouldMigrate, Objects: 1, StoredVersionsBefore: []string{"v1", "v2"}},
			want: `✔ widgets.example.org can be migrated to v2: 1 object, and none would fail
  storedVersions would be: v1, v2 → v2
`,
		},
		"Declined": {
			reason: "The text states that nothing was changed.",
			result: Result{Name: "widgets.example.org", To: "v2", Outcome: Declined, Objects: 2, StoredVersionsBefore: []string{"v1", "v2"}},
			want:   "  widgets.example.org is left unchanged: 2 objects, storedVersions v1, v2\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteText(&b, &tc.result); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, b.String()); diff != "" {
				t.Errorf("\n%s\nWriteText(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestStorageVersionHash compares hashes with those that API servers report for built-in types.
func TestStorageVersionHash(t *testing.T) {
	for kind, want := range map[string]string{"Namespace": "Q3oi5N2YM8M=", "ConfigMap": "qFsyl6wFWjQ=", "Pod": "xPOwRZ+Yhw8="} {
		if diff := cmp.Diff(want, storageVersionHash("", "v1", kind)); diff != "" {
			t.Errorf("storageVersionHash(%s): -want, +got:\n%s", kind, diff)
		}
	}
}
