// Command cluster-api runs the controllers of Cluster API's core manager that make and remove Machines: Cluster,
// MachineDeployment, MachineSet and Machine.
//
// The manager of the same release (its package core) also serves webhooks, on all addresses of the machine and without
// a flag for that, and migrates CRDs. HyperShift registers none of these webhooks. So this program has neither: it
// takes the controllers as they are, and opens one port on the loopback address.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	kubeconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// name is the name of the manager in Cluster API.
const name = "cluster-api-controller-manager"

// The manager's own defaults.
const (
	syncPeriod           = 10 * time.Minute
	connectionGrace      = 50 * time.Second
	conditionsGrace      = 5 * time.Minute
	queriesPerSecond     = 100
	burst                = 200
	queriesPerSecondNode = 20
	burstNode            = 30
)

func main() {
	klog.InitFlags(nil)
	health := flag.String("health-addr", "", "address of /readyz")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(*health); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(health string) error {
	ctx := ctrl.SetupSignalHandler()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	rest, err := kubeconfig.GetConfig()
	if err != nil {
		return err
	}
	rest.QPS, rest.Burst = queriesPerSecond, burst
	rest.UserAgent = remote.DefaultClusterAPIUserAgent(name)
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: health,
		Cache:                  setup.ManagerCacheOptions(scheme, name, "", syncPeriod),
		Client:                 setup.ManagerClientOptions(),
		Controller:             config.Controller{UsePriorityQueue: ptr.To(feature.Gates.Enabled(feature.PriorityQueue))},
	})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return err
	}
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return err
	}
	options := controller.Options{MaxConcurrentReconciles: 10}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(name, queriesPerSecondNode, burstNode),
	}, options)
	if err != nil {
		return err
	}
	if err := (&cluster.Reconciler{
		Client:                      mgr.GetClient(),
		APIReader:                   mgr.GetAPIReader(),
		ClusterCache:                clusters,
		RemoteConnectionGracePeriod: connectionGrace,
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return err
	}
	if err := (&machine.Reconciler{
		Client:                      mgr.GetClient(),
		APIReader:                   mgr.GetAPIReader(),
		ClusterCache:                clusters,
		RemoteConditionsGracePeriod: conditionsGrace,
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return err
	}
	if err := (&machineset.Reconciler{
		Client:          mgr.GetClient(),
		APIReader:       mgr.GetAPIReader(),
		ClusterCache:    clusters,
		PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll),
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return err
	}
	if err := (&machinedeployment.Reconciler{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
