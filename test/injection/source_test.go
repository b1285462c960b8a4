package injection

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/harness"
)

// The examples of the proposal, with three changes: the lost indentation is restored, extensions/v1beta1 is replaced
// because it is no longer served, and the namespace myns is omitted so that the objects get the namespace of the test.
const (
	exampleWebsite = `
apiVersion: v1
kind: Pod
metadata:
  name: website
  labels:
    app: website
    role: frontend
spec:
  containers:
  - name: website
    image: ecorp/website
    ports:
    - containerPort: 80
`
	exampleFrontend = `
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: frontend
spec:
  replicas: 3
  selector:
    matchLabels:
      tier: frontend
    matchExpressions:
    - {key: tier, operator: In, values: [frontend]}
  template:
    metadata:
      labels:
        app: guestbook
        tier: frontend
    spec:
      containers:
      - name: php-redis
        image: gcr.io/google_samples/gb-frontend:v3
        resources:
          requests:
            cpu: 100m
            memory: 100Mi
        env:
        - name: GET_HOSTS_FROM
          value: dns
        ports:
        - containerPort: 80
`
	examplePolicy = `
kind: ServiceInjectionPolicy
apiVersion: refract.dev/v1beta1
metadata:
  name: allow-database
spec:
  service: db
  selector:
    matchLabels:
      %s: frontend
  env:
  - name: DB_PORT
    value: 6379
  volumeMounts:
  - mountPath: /cache
    name: cache-volume
  volumes:
  - name: cache-volume
    emptyDir: {}
`
	// The values of variables in pods are strings, so the number is "6379".
	wantWebsite = `
apiVersion: v1
kind: Pod
metadata:
  labels:
    app: website
    role: frontend
  annotations:
    serviceinjectionpolicy.k8s.io/db: allow-database
spec:
  containers:
  - name: website
    image: ecorp/website
    volumeMounts:
    - mountPath: /cache
      name: cache-volume
    ports:
    - containerPort: 80
    env:
    - name: DB_PORT
      value: "6379"
  volumes:
  - name: cache-volume
    emptyDir: {}
`
	wantFrontend = `
kind: Pod
apiVersion: v1
metadata:
  labels:
    app: guestbook
    tier: frontend
  annotations:
    serviceinjectionpolicy.k8s.io/db: allow-database
spec:
  containers:
  - name: php-redis
    image: gcr.io/google_samples/gb-frontend:v3
    resources:
      requests:
        cpu: 100m
        memory: 100Mi
    volumeMounts:
    - mountPath: /cache
      name: cache-volume
    env:
    - name: GET_HOSTS_FROM
      value: dns
    - name: DB_PORT
      value: "6379"
    ports:
    - containerPort: 80
  volumes:
  - name: cache-volume
    emptyDir: {}
`
)

// TestSourceDocument: both examples of the proposal have the results that the proposal shows, for a pod without an
// owner, a ReplicaSet and a Deployment. The workloads themselves stay unchanged.
func TestSourceDocument(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		label, workload, want string
		labels                client.MatchingLabels
	}{
		"Website":  {"role", exampleWebsite, wantWebsite, client.MatchingLabels{"role": "frontend"}},
		"Frontend": {"tier", exampleFrontend, wantFrontend, client.MatchingLabels{"tier": "frontend"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"Pod", "ReplicaSet", "Deployment"} {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					s := begin(t)
					s.apply(fmt.Sprintf(examplePolicy, tc.label))
					s.inEffect(tc.label+": frontend", "allow-database")
					workload := as(t, s, kind, tc.workload)
					written := workload.DeepCopy()
					s.must(s.api.Create(t.Context(), workload))
					s.arePods(tc.labels, s.read(tc.want)[0], replicasOf(written))
					s.untilPolicy("allow-database", "has nothing left to do", func(p *refractv1beta1.ServiceInjectionPolicy) error {
						if int64(p.Status.Injected) != replicasOf(written) || p.Status.Matched != p.Status.Injected {
							return errors.New("want all pods injected")
						}
						return condition(p, refractv1beta1.ConditionRolledOut, "True", "")
					})
					if kind == "Pod" {
						return
					}
					s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(workload), workload))
					if at := harness.Lacks("", written.Object["spec"], workload.Object["spec"]); at != "" || workload.GetGeneration() != 1 {
						t.Errorf("The %s was changed: %s, generation %d", kind, at, workload.GetGeneration())
					}
					if got, _, _ := unstructured.NestedMap(workload.Object, "spec", "template", "metadata", "annotations"); len(got) > 0 {
						t.Errorf("The template of the %s has annotations: %v", kind, got)
					}
				})
			}
		})
	}
}

// as converts the pod or ReplicaSet of a manifest to an object of this kind.
func as(t *testing.T, s *scene, kind, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := s.read(manifest)[0]
	replicas, template := int64(1), map[string]any{"metadata": map[string]any{"labels": u.Object["metadata"].(map[string]any)["labels"]}, "spec": u.Object["spec"]}
	if u.GetKind() == "ReplicaSet" {
		spec := u.Object["spec"].(map[string]any)
		replicas, template = spec["replicas"].(int64), spec["template"].(map[string]any)
	}
	if kind == "Pod" {
		u.Object["spec"] = template["spec"]
		u.SetAPIVersion("v1")
		u.SetLabels(labelsOf(template))
	} else if u.GetKind() == "Pod" || kind == "Deployment" {
		u.Object["spec"] = map[string]any{
			"replicas": replicas, "template": template,
			"selector": map[string]any{"matchLabels": template["metadata"].(map[string]any)["labels"]},
		}
		u.SetAPIVersion(appsv1.SchemeGroupVersion.String())
		u.SetLabels(nil)
	}
	u.SetKind(kind)
	return u
}

func labelsOf(template map[string]any) map[string]string {
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	return labels
}

// replicasOf returns the number of pods of the object.
func replicasOf(u *unstructured.Unstructured) int64 {
	if n, ok, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); ok {
		return n
	}
	return 1
}

// arePods waits until n pods run, and compares each with want. Lists must have the same length; the pods may have more
// fields than want, because the API server sets defaults.
func (s *scene) arePods(labels client.MatchingLabels, want *unstructured.Unstructured, n int64) {
	s.Helper()
	want.SetNamespace("")
	s.until(fmt.Sprintf("%d pods are as wanted", n), func(ctx context.Context) error {
		pods, err := s.pods(ctx, labels)
		if err != nil {
			return err
		}
		if int64(len(pods)) != n {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		for i := range pods {
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pods[i])
			if err != nil {
				return err
			}
			object["apiVersion"], object["kind"] = "v1", "Pod" // Lists omit both.
			if at := harness.Lacks("", want.Object, object); at != "" {
				return fmt.Errorf("pod %s: %s", pods[i].Name, at)
			}
		}
		return nil
	})
}
