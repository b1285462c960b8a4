package schema

import (
	"encoding/json"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"refract.dev/tree"
)

// right are valid objects.
var right = map[string]string{
	"Deployment": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}, annotations: {a: b}, finalizers: [a/b]}
spec:
  replicas: 3
  revisionHistoryLimit: 5
  selector: {matchLabels: {app: web}, matchExpressions: [{key: a, operator: In, values: [b]}]}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 30
      hostNetwork: false
      nodeSelector: {kubernetes.io/os: linux}
      imagePullSecrets: [{name: registry}]
      securityContext: {runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
      tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]
      affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone}}]}}
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
      containers:
      - name: web
        image: nginx
        imagePullPolicy: IfNotPresent
        command: [nginx, -g]
        env: [{name: A, value: b}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]
        ports: [{name: http, containerPort: 80, protocol: TCP}]
        resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 2}}
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 5}
        volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
      volumes: [{name: data, emptyDir: {sizeLimit: 1Gi}}, {name: c, configMap: {name: c, defaultMode: 420, items: [{key: a, path: b}]}}]
`,
	"StatefulSet": `
apiVersion: apps/v1
kind: StatefulSet
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {spec: {containers: [{name: db, image: db}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}, status: {}}]
`,
	"DaemonSet":               `{apiVersion: apps/v1, kind: DaemonSet, spec: {selector: {}, template: {spec: {containers: [{name: a}]}}, updateStrategy: {type: OnDelete}}}`,
	"Service":                 `{apiVersion: v1, kind: Service, spec: {type: ClusterIP, selector: {a: b}, ports: [{port: 80, targetPort: http}], ipFamilies: [IPv4]}}`,
	"ConfigMap":               `{apiVersion: v1, kind: ConfigMap, immutable: true, data: {a: b}, binaryData: {c: aGk=}}`,
	"Secret":                  `{apiVersion: v1, kind: Secret, type: Opaque, data: {a: aGk=}, stringData: {b: c}}`,
	"Ingress":                 `{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{host: a, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}}`,
	"NetworkPolicy":           `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {policyTypes: [Ingress], ingress: [{ports: [{port: 80}, {port: http}], from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}`,
	"Job":                     `{apiVersion: batch/v1, kind: Job, spec: {backoffLimit: 1, template: {spec: {restartPolicy: Never, containers: [{name: a}]}}}}`,
	"CronJob":                 `{apiVersion: batch/v1, kind: CronJob, spec: {schedule: "* * * * *", suspend: true, jobTemplate: {spec: {template: {spec: {containers: []}}}}}}`,
	"HorizontalPodAutoscaler": `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 3, scaleTargetRef: {kind: A, name: b}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`,
	"PodDisruptionBudget":     `{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 50%, selector: {}}}`,
	"ClusterRole":             `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
	"RoleBinding":             `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, roleRef: {kind: Role, name: a}, subjects: [{kind: User, name: b}]}`,
	"Lease":                   `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {creationTimestamp: "2026-01-02T03:04:05Z"}, spec: {renewTime: "2026-01-02T03:04:05.000000Z", leaseTransitions: 1}}`,
	"Webhook":                 `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: [{name: a.b.c, clientConfig: {caBundle: aGk=, url: a}, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 5}]}`,
}

func strictDecoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme,
		corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{Strict: true})
}

// TestStrictDecoding makes one mistake after the other at each place of each object, and compares Check with the strict
// decoder of the Go types, which API servers use. Both must find the mistake, or neither.
func TestStrictDecoding(t *testing.T) {
	decoder := strictDecoder(t)
	s := newSchemas(t)
	mistakes := 0
	for name, text := range right {
		t.Run(name, func(t *testing.T) {
			object := parse(t, text)
			if found := s.Check(object); found != nil {
				t.Fatalf("a right object has mismatches: %v", found)
			}
			for _, place := range places(object, nil) {
				if strings.HasSuffix(place.String(), "/status") || place.String() == "/kind" || place.String() == "/apiVersion" {
					continue
				}
				for _, wrong := range []any{"a:b c", int64(7), 1.5, int64(1) << 40, 1e30, true, nil, map[string]any{"nonsense": int64(1)}, []any{"x", int64(1)}} {
					doc := tree.Edit(object)
					if _, err := doc.Replace(place, wrong); err != nil {
						t.Fatal(err)
					}
					data, err := json.Marshal(doc.Root())
					if err != nil {
						t.Fatal(err)
					}
					mistakes++
					_, _, refusal := decoder.Decode(data, nil, nil)
					found := decoding(s.Check(doc.Root()))
					if (refusal != nil) != (len(found) > 0) {
						t.Errorf("%s = %v: Check() = %v, but decoding says: %v", place, wrong, found, refusal)
					}
				}
			}
		})
	}
	if mistakes < 1000 {
		t.Errorf("tried %d mistakes only", mistakes)
	}
}

// decoding returns the mismatches that the decoder finds, too: all except missing members and enumerations.
func decoding(found []Mismatch) []Mismatch {
	var out []Mismatch
	for _, m := range found {
		enum := strings.Contains(m.Message, `, want "`) || strings.Contains(m.Message, ", want one of ")
		if !enum && m.Message != "is missing" && !strings.Contains(m.Message, " same ") {
			out = append(out, m)
		}
	}
	return out
}

// places returns every place inside a value.
func places(value any, at *tree.Pointer) []tree.Pointer {
	here := tree.Pointer{}
	var out []tree.Pointer
	if at != nil {
		here = *at
		out = append(out, here)
	}
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			p := here.Member(key)
			out = append(out, places(member, &p)...)
		}
	case []any:
		for i, item := range v {
			p := here.At(i)
			out = append(out, places(item, &p)...)
		}
	}
	return out
}
