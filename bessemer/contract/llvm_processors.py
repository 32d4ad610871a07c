"""LLVM's names of processors and features. Made by `python -m docs.processors`; do not edit."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


X86_64: dict[str, tuple[str, ...]] = {
    "x86-64": _names(
        """
        amdfam10 athlon-fx athlon64 athlon64-sse3 atom barcelona bonnell btver1 core2
        core_2_duo_sse4_1 core_2_duo_ssse3 generic k8 k8-sse3 nocona opteron opteron-sse3 penryn
        x86-64
        """
    ),
    "x86-64-v2": _names(
        """
        atom_sse4_2 atom_sse4_2_movbe bdver1 bdver2 bdver3 btver2 core-avx-i core_2nd_gen_avx
        core_3rd_gen_avx core_aes_pclmulqdq core_i7_sse4_2 corei7 corei7-avx goldmont goldmont-plus
        goldmont_plus ivybridge nehalem sandybridge silvermont slm tremont westmere x86-64-v2
        """
    ),
    "x86-64-v3": _names(
        """
        alderlake arrowlake arrowlake-s arrowlake_s bdver4 broadwell clearwaterforest core-avx2
        core_4th_gen_avx core_4th_gen_avx_tsx core_5th_gen_avx core_5th_gen_avx_tsx gracemont
        grandridge haswell knl knm lunarlake meteorlake mic_avx512 pantherlake raptorlake
        sierraforest skylake wildcatlake x86-64-v3 znver1 znver2 znver3
        """
    ),
    "x86-64-v4": _names(
        """
        cannonlake cascadelake cooperlake diamondrapids emeraldrapids graniterapids graniterapids-d
        graniterapids_d icelake-client icelake-server icelake_client icelake_server novalake
        rocketlake sapphirerapids skx skylake-avx512 skylake_avx512 tigerlake x86-64-v4 znver4
        znver5
        """
    ),
}
"""Processors with 64-bit code, by the level of x86-64 whose instructions they have."""

X86_32 = frozenset(
    _names(
        """
        athlon athlon-4 athlon-mp athlon-tbird athlon-xp c3 c3-2 geode i386 i486 i586 i686 k6 k6-2
        k6-3 lakemont pentium pentium-m pentium-mmx pentium2 pentium3 pentium3m pentium4 pentium4m
        pentium_4 pentium_4_sse3 pentium_ii pentium_iii pentium_iii_no_xmm_regs pentium_m
        pentium_mmx pentium_pro pentiumpro prescott winchip-c6 winchip2 yonah
        """
    )
)
"""Processors of x86 without 64-bit code."""

AARCH64 = frozenset(
    _names(
        """
        a64fx ampere1 ampere1a ampere1b ampere1c c1-nano c1-premium c1-pro c1-ultra carmel
        cortex-a320 cortex-a34 cortex-a35 cortex-a510 cortex-a520 cortex-a520ae cortex-a53
        cortex-a55 cortex-a57 cortex-a65 cortex-a65ae cortex-a710 cortex-a715 cortex-a72 cortex-a720
        cortex-a720ae cortex-a725 cortex-a73 cortex-a75 cortex-a76 cortex-a76ae cortex-a77
        cortex-a78 cortex-a78ae cortex-a78c cortex-r82 cortex-r82ae cortex-x1 cortex-x1c cortex-x2
        cortex-x3 cortex-x4 cortex-x925 exynos-m3 exynos-m4 exynos-m5 falkor fujitsu-monaka gb10
        grace kryo neoverse-512tvb neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1
        neoverse-v2 neoverse-v3 neoverse-v3ae olympus oryon-1 saphira thunderx thunderx2t99
        thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tsv110
        """
    )
)
"""Processors with 64-bit Arm code that run Linux."""

RISCV64 = frozenset(
    _names(
        """
        andes-ax25 andes-ax45 andes-ax45mpv andes-nx45 mips-p8700 sifive-p450 sifive-p470
        sifive-p550 sifive-p670 sifive-p870 sifive-s54 sifive-s76 sifive-u54 sifive-u74 sifive-x280
        sifive-x390 spacemit-x60 syntacore-scr4-rv64 syntacore-scr5-rv64 syntacore-scr7
        tt-ascalon-d8 veyron-v1 xiangshan-kunminghu xiangshan-nanhu
        """
    )
)
"""RISC-V processors with 64-bit code and double-precision registers."""

ARM_32 = frozenset(
    _names(
        """
        arm1020e arm1020t arm1022e arm10e arm10tdmi arm1136j-s arm1136jf-s arm1156t2-s arm1156t2f-s
        arm1176jz-s arm1176jzf-s arm710t arm720t arm7tdmi arm7tdmi-s arm8 arm810 arm9 arm920 arm920t
        arm922t arm926ej-s arm940t arm946e-s arm966e-s arm968e-s arm9e arm9tdmi cortex-a12
        cortex-a15 cortex-a17 cortex-a32 cortex-a5 cortex-a7 cortex-a8 cortex-a9 cortex-m0
        cortex-m0plus cortex-m1 cortex-m23 cortex-m3 cortex-m33 cortex-m35p cortex-m4 cortex-m52
        cortex-m55 cortex-m7 cortex-m85 cortex-r4 cortex-r4f cortex-r5 cortex-r52 cortex-r52plus
        cortex-r7 cortex-r8 cyclone ep9312 iwmmxt krait mpcore mpcorenovfp sc000 sc300 star-mc1
        star-mc3 strongarm strongarm110 strongarm1100 strongarm1110 swift xscale
        """
    )
)
"""Arm processors without 64-bit code."""

RISCV_SMALL = frozenset(
    _names(
        """
        andes-45-series andes-a25 andes-a45 andes-n45 generic-ooo generic-rv32 generic-rv64 rocket
        rocket-rv32 rocket-rv64 rp2350-hazard3 sifive-7-series sifive-e20 sifive-e21 sifive-e24
        sifive-e31 sifive-e34 sifive-e76 sifive-s21 sifive-s51 syntacore-scr1-base
        syntacore-scr1-max syntacore-scr3-rv32 syntacore-scr3-rv64 syntacore-scr4-rv32
        syntacore-scr5-rv32
        """
    )
)
"""RISC-V processors that lack one of these."""

X86_FEATURES = frozenset(
    _names(
        """
        16bit-mode 32bit-mode 64bit 64bit-mode adx aes allow-light-256-bit amx-avx512 amx-bf16
        amx-complex amx-fp16 amx-fp8 amx-int8 amx-movrs amx-tf32 amx-tile avx avx10.1 avx10.1-512
        avx10.2 avx10.2-512 avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f
        avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vp2intersect
        avx512vpopcntdq avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 branch-hint
        branchfusion ccmp cf cldemote clflushopt clwb clzero cmov cmpccxadd crc32 cx16 cx8 egpr
        enqcmd ermsb evex512 f16c false-deps-getmant false-deps-lzcnt-tzcnt false-deps-mulc
        false-deps-mullq false-deps-perm false-deps-popcnt false-deps-range fast-11bytenop
        fast-15bytenop fast-7bytenop fast-bextr fast-dpwssd fast-gather fast-hops fast-imm16
        fast-lzcnt fast-movbe fast-scalar-fsqrt fast-scalar-shift-masks fast-shld-rotate
        fast-variable-crosslane-shuffle fast-variable-perlane-shuffle fast-vector-fsqrt
        fast-vector-shift-masks faster-shift-than-shuffle fma fma4 fsgsbase fsrm fxsr gfni
        harden-sls-ijmp harden-sls-ret hreset idivl-to-divb idivq-to-divl inline-asm-use-gpr32
        invpcid kl lea-sp lea-uses-ag lvi-cfi lvi-load-hardening lwp lzcnt macrofusion mmx movbe
        movdir64b movdiri movrs mwaitx ndd nf no-bypass-delay no-bypass-delay-blend
        no-bypass-delay-mov no-bypass-delay-shuffle nopl pad-short-functions pclmul pconfig pku
        popcnt ppx prefer-128-bit prefer-256-bit prefer-legacy-setcc prefer-mask-registers
        prefer-movmsk-over-vtest prefer-no-gather prefer-no-scatter prefetchi prfchw ptwrite
        push2pop2 raoint rdpid rdpru rdrnd rdseed retpoline retpoline-external-thunk
        retpoline-indirect-branches retpoline-indirect-calls rtm sahf sbb-dep-breaking serialize
        seses sgx sha sha512 shstk slow-3ops-lea slow-incdec slow-lea slow-pmaddwd slow-pmulld
        slow-pmullq slow-shld slow-two-mem-ops slow-unaligned-mem-16 slow-unaligned-mem-32 sm3 sm4
        soft-float sse sse-unaligned-mem sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tagged-globals tbm
        tsxldtrk tuning-fast-imm-vector-shift uintr use-glm-div-sqrt-costs use-slm-arith-costs
        usermsr vaes vpclmulqdq vzeroupper waitpkg wbnoinvd widekl x32 x87 xop xsave xsavec xsaveopt
        xsaves zu
        """
    )
)
"""Features of x86 that a target may add or remove."""
