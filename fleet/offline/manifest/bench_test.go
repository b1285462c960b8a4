package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// BenchmarkRead measures the reading of a fleet: 1,000 Deployments, 1,000 clusters and 50 policies.
func BenchmarkRead(b *testing.B) {
	documents := fleet(1000, 1000, 50)
	files := fstest.MapFS{}
	for i, text := range documents {
		files[fmt.Sprintf("%04d.yaml", i)] = &fstest.MapFile{Data: []byte(text)}
	}
	all := strings.Join(documents, "---\n")
	asJSON := listAsJSON(b, all)
	items := "- " + strings.Join(indented(documents), "- ")
	for name, in := range map[string]fstest.MapFS{
		"Files":      files,
		"Documents":  {"all.yaml": {Data: []byte(all)}},
		"List":       {"all.yaml": {Data: []byte("apiVersion: v1\nkind: List\nitems:\n" + items)}},
		"ListAsJSON": {"all.json": {Data: asJSON}},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(all)))
			b.ReportAllocs()
			for b.Loop() {
				set, problems := ReadFS(in)
				if len(problems) > 0 || len(set.Manifests) != len(documents) {
					b.Fatalf("ReadFS(): %d manifests, problems %v", len(set.Manifests), problems)
				}
			}
		})
	}
}

// listAsJSON returns the manifests in the format of kubectl get -o json.
func listAsJSON(b *testing.B, manifests string) []byte {
	b.Helper()
	set, problems := ReadFS(fstest.MapFS{"all.yaml": {Data: []byte(manifests)}})
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	items := make([]any, len(set.Manifests))
	for i, o := range set.Manifests {
		items[i] = o.Content.Object
	}
	text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "    ")
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// fleet returns manifests with the usual formatting.
func fleet(deployments, clusters, policies int) []string {
	var documents []string
	for i := range deployments {
		documents = append(documents, fmt.Sprintf(deployment, i, i%max(policies, 1)))
	}
	for i := range clusters {
		documents = append(documents, fmt.Sprintf(federatedCluster, i))
	}
	for i := range policies {
		documents = append(documents, fmt.Sprintf(overridePolicy, i))
	}
	return documents
}

// indented returns the documents with the indentation of list items.
func indented(documents []string) []string {
	out := make([]string, len(documents))
	for i, text := range documents {
		out[i] = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
	}
	return out
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-%[1]d
  namespace: shop
  labels:
    app.kubernetes.io/name: web
    app.kubernetes.io/instance: web-%[1]d
    app.kubernetes.io/part-of: shop
    kubeadmiral.io/propagation-policy-name: everywhere
    kubeadmiral.io/override-policy-name: policy-%[2]d
  annotations:
    example.com/owner: "team-shop@example.com"
    example.com/runbook: https://runbooks.example.com/shop/web
spec:
  replicas: 3
  revisionHistoryLimit: 5
  progressDeadlineSeconds: 600
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 25%%, maxUnavailable: 0}
  selector:
    matchLabels:
      app.kubernetes.io/name: web
      app.kubernetes.io/instance: web-%[1]d
  template:
    metadata:
      labels:
        app.kubernetes.io/name: web
        app.kubernetes.io/instance: web-%[1]d
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9090"
    spec:
      serviceAccountName: web
      terminationGracePeriodSeconds: 45
      securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000}
      containers:
        - name: web
          image: registry.example.com/shop/web:1.27.3
          imagePullPolicy: IfNotPresent
          args: ["--listen=:8080", "--metrics=:9090", "--log-level=info"]
          ports:
            - {name: http, containerPort: 8080}
            - {name: metrics, containerPort: 9090}
          env:
            - name: DATABASE_HOST
              value: postgres.shop.svc.cluster.local
            - name: DATABASE_PASSWORD
              valueFrom:
                secretKeyRef:
                  name: web-database
                  key: password
            - name: CACHE_TTL_SECONDS
              value: "300"
          resources:
            requests: {cpu: 250m, memory: 256Mi}
            limits: {cpu: "1", memory: 512Mi}
          readinessProbe:
            httpGet: {path: /ready, port: http}
            periodSeconds: 5
          livenessProbe:
            httpGet: {path: /live, port: http}
            initialDelaySeconds: 10
          volumeMounts:
            - name: config
              mountPath: /etc/web
              readOnly: true
        - name: proxy
          image: registry.example.com/mesh/proxy:2.4.1
          args: [--upstream, "127.0.0.1:8080"]
          resources:
            requests: {cpu: 100m, memory: 64Mi}
      volumes:
        - name: config
          configMap:
            name: web-config
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {app.kubernetes.io/name: web}
`

const federatedCluster = `apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata:
  name: member-%[1]d
  labels:
    region: eu-west
    tier: production
    example.com/number: "%[1]d"
spec:
  apiEndpoint: https://member-%[1]d.example.com:6443
  taints:
    - key: edge
      effect: NoSchedule
`

const overridePolicy = `apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata:
  name: policy-%[1]d
  namespace: shop
spec:
  overrideRules:
    - targetClusters:
        clusterSelector: {region: eu-west}
      overriders:
        image:
          - imagePath: /spec/template/spec/containers/0/image
            operations:
              - imageComponent: Registry
                operator: addIfAbsent
                value: eu.example.com
    - targetClusters:
        clusters: [member-1, member-2]
      overriders:
        jsonpatch:
          - path: /spec/replicas
            operator: replace
            value: 5
          - path: /metadata/annotations/example.com~1tier
            operator: add
            value: gold
    - overriders:
        labels:
          - operator: addIfAbsent
            value: {example.com/policy: policy-%[1]d}
`
